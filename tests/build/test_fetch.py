"""Pinning what is fetched, and what is said when the hub cannot be asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.plans import llm_plan

from trtbuild.build.commands import Recipe, Step, llm_commands
from trtbuild.build.fetch import cached_snapshot, pin_revision, pinned
from trtbuild.build.jobs import Job
from trtbuild.errors import ModelSourceError
from trtbuild.spec import Target

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def answers(repository: str, revision: str) -> str:
    assert (repository, revision) == ("Qwen/Qwen2.5-7B-Instruct", "main")
    return COMMIT


def never(repository: str, revision: str) -> str:
    raise AssertionError("asked the hub")


def test_a_branch_becomes_its_commit_in_the_command_itself() -> None:
    recipe = Recipe("convert", "fp16", revision="main")
    llm = llm_plan(quant="fp16")
    commands = llm_commands(llm, target=Target.ENGINE, version="1.2.1", model_type="qwen2", recipe=recipe)
    job = pinned(Job(llm, commands, recipe), ask=answers)
    assert job.recipe.revision == COMMIT
    fetch = next(command for command in job.commands if command.step is Step.FETCH)
    assert fetch.argv[4] == COMMIT
    assert "main" not in fetch.argv
    assert job.commands[1:] == commands[1:]


def test_a_commit_and_a_local_folder_ask_nobody() -> None:
    assert pin_revision("a/b", COMMIT, ask=never) == COMMIT
    job = Job(llm_plan(), (), Recipe("convert", "fp16"))
    assert pinned(job, ask=never) is job


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_offline_a_branch_is_refused_with_the_way_to_fetch_elsewhere(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "environment":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelSourceError, match="offline") as raised:
        pin_revision("a/b", "main", offline=by == "argument", ask=never)
    assert "--weights FOLDER" in raised.value.remedies[0]


@pytest.mark.parametrize(
    ("printed", "words", "way_out"),
    [
        ("huggingface_hub.errors.GatedRepoError: 403 Client Error.", "is gated", "HF_TOKEN"),
        ("huggingface_hub.errors.RepositoryNotFoundError: 404", "no repository a/b", "check the name"),
        ("huggingface_hub.errors.RevisionNotFoundError: 404", "no revision 'v9'", "--revision main"),
        ("httpx.ConnectError: refused", "cannot be asked about a/b: httpx.ConnectError", "--weights FOLDER"),
        ("", "cannot be asked about a/b: no answer", "--weights FOLDER"),
    ],
)
def test_the_hubs_errors_become_a_sentence_and_a_way_out(printed: str, words: str, way_out: str) -> None:
    def fails(repository: str, revision: str) -> str:
        raise ConnectionError(f"Traceback (most recent call last):\n{printed}" if printed else "")

    with pytest.raises(ModelSourceError) as raised:
        pin_revision("a/b", "v9", ask=fails)
    assert words in raised.value.message
    assert any(way_out in remedy for remedy in raised.value.remedies)


def test_what_was_pinned_once_stays(tmp_path: Path) -> None:
    recipe = Recipe("convert", "fp16", revision="main")
    llm = llm_plan(quant="fp16")
    job = Job(
        llm,
        llm_commands(llm, target=Target.ENGINE, version="1.2.1", model_type="qwen2", recipe=recipe),
        recipe,
    )
    memo = tmp_path / "work" / "source.pin"
    assert pinned(job, ask=answers, memo=memo).recipe.revision == COMMIT
    assert pinned(job, ask=never, memo=memo).recipe.revision == COMMIT
    other = Job(llm, job.commands, Recipe("convert", "fp16", revision="v2"))
    with pytest.raises(AssertionError, match="asked the hub"):
        pinned(other, ask=never, memo=memo)


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
