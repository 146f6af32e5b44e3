"""Pinning what is fetched, and what is said when the hub cannot be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.plans import llm_plan

from trtbuild.build.commands import Recipe, Step, llm_commands
from trtbuild.build.fetch import cached_snapshot, pin_revision, pinned
from trtbuild.build.jobs import Job
from trtbuild.errors import ModelSourceError
from trtbuild.spec import Target

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Info:
    sha = COMMIT


def answers(repository: str, *, revision: str) -> Any:
    assert (repository, revision) == ("Qwen/Qwen2.5-7B-Instruct", "main")
    return Info()


def never(repository: str, *, revision: str) -> Any:
    raise AssertionError("asked the hub")


def test_a_branch_becomes_its_commit_in_the_command_itself() -> None:
    recipe = Recipe("convert", "fp16", revision="main")
    llm = llm_plan(quant="fp16")
    commands = llm_commands(llm, target=Target.ENGINE, version="1.2.1", model_type="qwen2", recipe=recipe)
    job = pinned(Job(llm, commands, recipe), model_info=answers)
    assert job.recipe.revision == COMMIT
    fetch = next(command for command in job.commands if command.step is Step.FETCH)
    assert fetch.argv[4] == COMMIT
    assert "main" not in fetch.argv
    assert job.commands[1:] == commands[1:]


def test_a_commit_and_a_local_folder_ask_nobody() -> None:
    assert pin_revision("a/b", COMMIT, model_info=never) == COMMIT
    job = Job(llm_plan(), (), Recipe("convert", "fp16"))
    assert pinned(job, model_info=never) is job


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_offline_a_branch_is_refused_with_the_way_to_fetch_elsewhere(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "environment":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelSourceError, match="offline") as raised:
        pin_revision("a/b", "main", offline=by == "argument", model_info=never)
    assert "--weights FOLDER" in raised.value.remedies[0]


# The hub's own class names; its package need not be installed for them to be understood.
class RepositoryNotFoundError(Exception):
    pass


class GatedRepoError(RepositoryNotFoundError):
    pass


class RevisionNotFoundError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "words", "way_out"),
    [
        (GatedRepoError("403"), "is gated", "HF_TOKEN"),
        (RepositoryNotFoundError("404"), "no repository a/b", "check the name"),
        (RevisionNotFoundError("404"), "no revision 'v9'", "--revision main"),
        (
            ConnectionError("refused"),
            "cannot be asked about a/b: ConnectionError: refused",
            "--weights FOLDER",
        ),
    ],
)
def test_the_hubs_errors_become_a_sentence_and_a_way_out(error: Exception, words: str, way_out: str) -> None:
    def fails(repository: str, *, revision: str) -> Any:
        raise error

    with pytest.raises(ModelSourceError) as raised:
        pin_revision("a/b", "v9", model_info=fails)
    assert words in raised.value.message
    assert any(way_out in remedy for remedy in raised.value.remedies)


def test_a_model_in_the_local_cache_is_found_without_the_network(tmp_path: Path) -> None:
    folder = tmp_path / "models--a--b"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    assert cached_snapshot("a/b", "main", cache=tmp_path) is None  # a fetch that was not finished
    (snapshot / "config.json").write_text("{}")
    assert cached_snapshot("a/b", "main", cache=tmp_path) == snapshot
    assert cached_snapshot("a/b", COMMIT, cache=tmp_path) == snapshot
    assert cached_snapshot("a/c", "main", cache=tmp_path) is None
