"""A writer that is killed at any step leaves the last good state, or one that the next writer finishes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from trtbuild.repository import steps
from trtbuild.repository.manifest import verify_manifest
from trtbuild.repository.transaction import finish_interrupted, is_interrupted, staging_of
from trtbuild.repository.writer import remove_model

pytestmark = pytest.mark.usefixtures("composed_once")

STEPS = ("make_folder", "write_file", "link_file", "move", "remove_file", "remove_tree")


def snapshot(repo: Path) -> dict[str, bytes]:
    return {
        path.relative_to(repo).as_posix(): path.read_bytes()
        for path in sorted(repo.rglob("*"))
        if path.is_file()
    }


def run_until_step(number: int, half: bool, work: Any) -> bool:
    """Runs ``work`` in a child that dies at its ``number``-th step, before it or in its middle.

    Returns whether it got to the end.
    """
    child = os.fork()
    if child == 0:
        count = 0

        def counted(name: str, real: Any) -> Any:
            def step(*arguments: Any, **options: Any) -> Any:
                nonlocal count
                count += 1
                if count == number:
                    if half and name == "write_file":
                        arguments[0].write_bytes(arguments[1][: len(arguments[1]) // 2])
                    elif half and name == "remove_tree" and arguments[0].is_dir():
                        files = [path for path in arguments[0].rglob("*") if path.is_file()]
                        for path in files[: len(files) // 2]:
                            path.unlink()
                    os._exit(9)  # as SIGKILL does: nothing is cleaned up
                return real(*arguments, **options)

            return step

        for name in STEPS:
            setattr(steps, name, counted(name, getattr(steps, name)))
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9), "the work itself failed"
    return code == 0


def every_kill(half: bool, prepare: Any, work: Any, check: Any) -> int:
    """Kills ``work`` at each of its steps in turn, each time after ``prepare``; returns their number."""
    for number in range(1, 500):
        prepare()
        if run_until_step(number, half, work):
            check(finished=True)
            return number - 1
        check(finished=False)
    raise AssertionError("the work has no end")


@pytest.mark.parametrize("half", [False, True], ids=["before", "within"])
def test_a_first_write_killed_at_any_step(tmp_path: Path, shop: Any, half: bool) -> None:
    plan = shop.plan(shop.llm())
    shop.write(plan, output=tmp_path / "expected")
    expected = snapshot(tmp_path / "expected")

    def prepare() -> None:
        steps.remove_tree(shop.repo)
        steps.remove_tree(staging_of(shop.repo))

    def check(finished: bool) -> None:
        if not is_interrupted(shop.repo):
            state = snapshot(shop.repo) if shop.repo.exists() else {}
            assert state in ({}, expected)
        shop.write(plan)
        assert snapshot(shop.repo) == expected
        assert not staging_of(shop.repo).exists()

    assert every_kill(half, prepare, lambda: shop.write(plan), check) > 30


@pytest.mark.parametrize("half", [False, True], ids=["before", "within"])
def test_an_update_killed_at_any_step_loses_neither_state(tmp_path: Path, shop: Any, half: bool) -> None:
    a, b = shop.llm("a"), shop.llm("b")
    old, new = shop.plan(a, b), shop.plan(a, shop.llm("b", kv_tokens=1024, max_output_tokens=9), shop.ocr())
    shop.write(old, output=tmp_path / "old")
    shop.write(new, output=tmp_path / "new")
    states = [snapshot(tmp_path / "old"), snapshot(tmp_path / "new")]
    untouched = {name for name in states[0] if name.startswith(("a/", "a_"))}

    def prepare() -> None:
        steps.remove_tree(shop.repo)
        steps.remove_tree(staging_of(shop.repo))
        shop.write(old)

    def check(finished: bool) -> None:
        found = snapshot(shop.repo)
        if not is_interrupted(shop.repo):
            assert found in states
        # The other model's files are never absent, not even between two renames.
        assert {name: found[name] for name in untouched} == {name: states[0][name] for name in untouched}
        shop.write(new)
        assert snapshot(shop.repo) == states[1]
        assert verify_manifest(shop.repo) == []
        assert not staging_of(shop.repo).exists()

    assert every_kill(half, prepare, lambda: shop.write(new), check) > 30


def test_a_removal_killed_at_any_step_is_finished_by_whoever_comes_next(tmp_path: Path, shop: Any) -> None:
    a, b = shop.llm("a"), shop.llm("b")
    both, alone = shop.plan(a, b), shop.plan(a)

    def remove() -> None:
        remove_model(shop.repo, "b", plan=alone, spec=shop.spec(a))

    def prepare() -> None:
        steps.remove_tree(shop.repo)
        steps.remove_tree(staging_of(shop.repo))
        shop.write(both)

    def check(finished: bool) -> None:
        shop.write(alone, drop_others=True)
        assert {path.name for path in shop.repo.iterdir() if path.is_dir()} == {
            "a", "a_engine", "a_preprocess", "a_postprocess", "a_ensemble",
        }  # fmt: skip
        assert verify_manifest(shop.repo) == []

    assert every_kill(False, prepare, remove, check) > 8


def test_built_engines_survive_every_kill(tmp_path: Path, shop: Any) -> None:
    old, new = shop.plan(shop.llm()), shop.plan(shop.llm(max_num_tokens=4096))

    def prepare() -> None:
        for folder in (shop.repo, staging_of(shop.repo), tmp_path / "model_repo.engines"):
            steps.remove_tree(folder)
        shop.write(old)
        (shop.repo / "qwen-7b_engine/1/rank0.engine").write_bytes(b"compiled for hours")

    def check(finished: bool) -> None:
        shop.write(new)
        aside = list(tmp_path.glob("model_repo.engines/*/1/rank0.engine"))
        assert [path.read_bytes() for path in aside] == [b"compiled for hours"]
        assert not (shop.repo / "qwen-7b_engine/1/rank0.engine").exists()

    assert every_kill(False, prepare, lambda: shop.write(new), check) > 10


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_fails_says_so_and_leaves_the_last_good_state(
    shop: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # A full disk: the step raises instead of dying, and the next run starts from what was there.
    shop.write(shop.plan(shop.llm()))
    before = snapshot(shop.repo)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(steps, name, full)
        with pytest.raises(OSError, match="No space left"):
            shop.write(shop.plan(shop.llm(kv_tokens=1024)))
    if not is_interrupted(shop.repo):
        assert snapshot(shop.repo) in (before, after_update(shop))
    shop.write(shop.plan(shop.llm(kv_tokens=1024)))
    assert verify_manifest(shop.repo) == []


def after_update(shop: Any) -> dict[str, bytes]:
    output = shop.folder / "after"
    if not output.exists():
        shop.write(shop.plan(shop.llm(kv_tokens=1024)), output=output)
    return snapshot(output)


def test_a_staging_folder_without_a_journal_is_dropped(shop: Any) -> None:
    staging = staging_of(shop.repo)
    (staging / "new" / "half").mkdir(parents=True)
    (staging / "new" / "half" / "config.pbtxt").write_text("half made")
    shop.write(shop.plan(shop.llm()))
    assert not staging.exists()
    assert not (shop.repo / "half").exists()


def test_a_server_can_have_an_interrupted_change_finished(shop: Any) -> None:
    plan, after = shop.plan(shop.llm()), shop.plan(shop.llm(kv_tokens=1024))
    shop.write(plan)
    assert not finish_interrupted(shop.repo)
    killed = next(number for number in range(1, 200) if not_finished_after(number, shop, after))
    assert killed > 1
    assert finish_interrupted(shop.repo)
    assert snapshot(shop.repo) == after_update(shop)
    assert not staging_of(shop.repo).exists()


def not_finished_after(number: int, shop: Any, plan: Any) -> bool:
    run_until_step(number, False, lambda: shop.write(plan))
    return is_interrupted(shop.repo)


def test_the_journal_is_the_moment_of_decision(shop: Any) -> None:
    staging = staging_of(shop.repo)
    shop.write(shop.plan(shop.llm("a")))
    (staging / "files").mkdir(parents=True)
    (staging / "files" / "README.md").write_text("decided")
    journal = {"folders": [], "removed_folders": [], "files": ["README.md"], "removed_files": []}
    (staging / "journal.json").write_text(json.dumps(journal))
    assert is_interrupted(shop.repo)
    report = shop.write(shop.plan(shop.llm("a")))  # finishes it first, then brings the file up to date
    assert not is_interrupted(shop.repo)
    assert report.written == ()
    assert (shop.repo / "README.md").read_text() != "decided"
