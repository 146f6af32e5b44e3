"""A build's steps: what is run, verified, kept, resumed, and what a failure or a kill leaves behind."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.gpu_host import product_files
from tests.support.plans import llm_plan

from trtbuild.build.cache import container_tools, step_keys
from trtbuild.build.commands import Command, Recipe, Step, llm_commands
from trtbuild.build.jobs import Job
from trtbuild.build.places import Here
from trtbuild.build.steps import BuildResult, StepEvent, run_job
from trtbuild.catalog.versions import find_container
from trtbuild.errors import BuildError
from trtbuild.spec import Target

VERSION = "1.2.1"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOOL = Path(__file__).parents[1] / "support" / "build_tools.py"
STEPS = ("fetch", "convert", "compile")


class Tools(Here):
    """The fakes on PATH take every step."""

    def refuses(self, command: Command) -> str | None:
        return None


class Nowhere(Here):
    """Takes no step that needs a GPU."""

    def refuses(self, command: Command) -> str | None:
        return "no GPU" if command.needs_gpu else None


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with the fakes; returns the file that their calls are noted in."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python3", "trtllm-build", "docker"):
        path = folder / name
        path.write_text(f'#!/bin/sh\nFAKE_NAME={name} exec {sys.executable} -S {TOOL} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    calls = tmp_path / "calls"
    calls.touch()
    (tmp_path / "state").mkdir()
    facts = {name: {**product_files(command)} for name, command in zip(STEPS, job().commands, strict=True)}
    for name, value in {
        "FAKE_CALLS": str(calls),
        "FAKE_VERSION": VERSION,
        "FAKE_STATE": str(tmp_path / "state"),
        "FAKE_FACTS": json.dumps(facts),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FAKE_FAULT", raising=False)
    return calls


def job(**changes: Any) -> Job:
    llm = llm_plan(tp=2, weights_bytes=14, **changes)  # the fakes write 7 bytes a rank
    recipe = Recipe("convert", "awq", 128, source_quant="W4A16_GPTQ", revision=COMMIT)
    commands = llm_commands(
        llm, target=Target.ENGINE, version=VERSION, model_type="qwen2", recipe=recipe, examples="/examples"
    )
    return Job(llm, commands, recipe)


def keys_of(made: Job) -> tuple[str, ...]:
    tools = container_tools(find_container("26.07"), "8.9")
    return step_keys(made, tools=tools, source=f"{made.llm.source}@{COMMIT}")


def build(
    work: Path,
    made: Job | None = None,
    *,
    place: Here | None = None,
    on_event: Callable[[StepEvent], None] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> BuildResult:
    made = made or job()
    place = place or Tools(python="python3")
    return run_job(made, keys_of(made), work=work, places=[place], on_event=on_event, on_line=on_line)


def states(result: BuildResult) -> list[str]:
    return [event.state for event in result.events]


def leftovers(work: Path) -> list[str]:
    return sorted(path.name for pattern in ("*.partial", "*.old", "*.key") for path in work.glob(pattern))


def called(tools: Path) -> list[str]:
    return tools.read_text().split()


def test_a_build_makes_every_product_and_logs_every_step(tools: Path, tmp_path: Path) -> None:
    events: list[str] = []
    work = tmp_path / "build" / "qwen-7b"
    result = build(work, on_event=lambda event: events.append(f"{event.command.step.value} {event.state}"))
    assert called(tools) == list(STEPS)
    assert states(result) == ["done", "done", "done"]
    assert events == [f"{step} {state}" for step in STEPS for state in ("started", "done")]
    assert sorted(path.name for path in (work / "engine").iterdir()) == [
        "config.json",
        "rank0.engine",
        "rank1.engine",
    ]
    assert (work / "logs" / "compile.log").read_text() == "compile: working\nHALF compile\ncompile: done\n"
    assert leftovers(work) == []


def test_a_second_build_runs_nothing_and_says_so(tools: Path, tmp_path: Path) -> None:
    build(tmp_path / "w")
    assert states(build(tmp_path / "w")) == ["cached"] * 3
    assert called(tools) == list(STEPS)


def test_only_what_a_change_touches_is_made_again(tools: Path, tmp_path: Path) -> None:
    build(tmp_path / "w")
    again = build(tmp_path / "w", without_engine_facts(job(max_batch_size=16)))
    assert states(again) == ["cached", "cached", "done"]
    assert called(tools) == [*STEPS, "compile"]


def without_engine_facts(made: Job) -> Job:
    """The fake writes an engine with the facts of the first plan."""
    return replace(made, commands=(*made.commands[:-1], replace(made.commands[-1], facts=())))


def test_a_product_that_was_damaged_is_made_again(tools: Path, tmp_path: Path) -> None:
    build(tmp_path / "w")
    (tmp_path / "w" / "checkpoint" / "rank1.safetensors").write_text("")
    assert states(build(tmp_path / "w")) == ["cached", "done", "cached"]


FAULTS = ("exit=3", "kill=9", "kill=15", "empty", "missing", "full")


@pytest.mark.parametrize(
    ("step", "fault"),
    [*((step, fault) for step in STEPS for fault in FAULTS), ("convert", "wrong"), ("compile", "wrong")],
)
def test_a_step_that_fails_leaves_nothing_that_looks_finished(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, fault: str
) -> None:
    work = tmp_path / "w"
    monkeypatch.setenv("FAKE_FAULT", f"{step}:{fault}")
    with pytest.raises(BuildError) as raised:
        build(work)
    product = job().commands[STEPS.index(step)].product
    assert not (work / product).exists()
    assert not (work / f"{product}.done").exists()
    words = {
        "exit=3": "exit code 3",
        "kill=9": "killed, most often for using too much memory",
        "kill=15": "SIGTERM",
        "full": "the disk is full",
        "empty": "that is not empty",
        "missing": "that is not empty",
        "wrong": "was asked for",
    }
    assert words[fault] in raised.value.message
    monkeypatch.delenv("FAKE_FAULT")
    done = STEPS.index(step)
    assert states(build(work)) == ["cached"] * done + ["done"] * (3 - done)


def test_a_product_that_is_far_too_small_is_not_taken(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = job()
    large = replace(made, commands=tuple(replace(command, least_bytes=10_000) for command in made.commands))
    with pytest.raises(BuildError, match=r"holds \d+ bytes; at least 10000 were expected"):
        build(tmp_path / "w", large)
    assert not (tmp_path / "w" / "source").exists()


def test_an_interrupted_build_ends_what_its_place_left_running(tools: Path, tmp_path: Path) -> None:
    swept: list[str] = []

    @dataclass(frozen=True)
    class Sweeping(Tools):
        def sweep(self, command: Command, work: Path) -> None:
            swept.append(command.step.value)

    def interrupt(line: str) -> None:
        if line == "HALF convert":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "w", place=Sweeping(python="python3"), on_line=interrupt)
    assert swept == [
        "fetch",
        "convert",
        "convert",
    ]  # before each step, and after the one that was interrupted
    assert states(build(tmp_path / "w")) == ["cached", "done", "done"]


def test_the_message_of_a_failure_ends_with_its_last_lines(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "convert:exit=1")
    with pytest.raises(BuildError) as raised:
        build(tmp_path / "w")
    assert "w: convert failed: exit code 1" in raised.value.message
    assert raised.value.message.endswith("    convert: working\n    HALF convert")
    assert "logs/convert.log" in raised.value.message


def test_a_tool_of_another_version_is_told_by_its_own_words(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VERSION", "0.13.0")  # has no --monitor_memory
    with pytest.raises(BuildError, match="the tool is of another version than the plan is for"):
        build(tmp_path / "w")


def test_a_failed_rebuild_keeps_the_last_good_product(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "w"
    build(work)
    monkeypatch.setenv("FAKE_FAULT", "compile:exit=1")
    with pytest.raises(BuildError):
        build(work, without_engine_facts(job(max_batch_size=16)))
    assert (work / "engine" / "rank1.engine").read_text() == "weights"
    monkeypatch.delenv("FAKE_FAULT")
    assert states(build(work)) == ["cached"] * 3


def test_two_builds_in_one_folder_do_not_meet(tools: Path, tmp_path: Path) -> None:
    work = tmp_path / "w"

    def second(event: StepEvent) -> None:
        if event.state == "started":
            with pytest.raises(
                BuildError, match=rf"another build is at work in .* \(process {os.getpid()}\)"
            ):
                build(work)

    build(work, on_event=second)
    assert called(tools) == list(STEPS)


def test_a_step_that_no_place_takes_is_left_with_all_after_it(tools: Path, tmp_path: Path) -> None:
    result = build(tmp_path / "w", place=Nowhere(python="python3"))
    assert states(result) == ["done", "done", "left"]
    assert [command.step for command in result.left] == [Step.COMPILE]
    assert result.events[-1].detail == "here: no GPU"


def test_a_product_made_elsewhere_is_verified_and_taken(tools: Path, tmp_path: Path) -> None:
    work = tmp_path / "w"
    build(work, place=Nowhere(python="python3"))
    engine = work / "engine"
    engine.mkdir()
    for name, content in product_files(job().commands[-1]).items():
        (engine / name).write_text(content)
    assert states(build(work, place=Nowhere(python="python3"))) == ["cached", "cached", "adopted"]
    assert states(build(work, place=Nowhere(python="python3"))) == ["cached"] * 3


def test_a_product_made_elsewhere_for_another_plan_is_refused(tools: Path, tmp_path: Path) -> None:
    work = tmp_path / "w"
    build(work, place=Nowhere(python="python3"))
    (work / "engine").mkdir()
    for name, content in product_files(job(max_batch_size=16).commands[-1]).items():
        (work / "engine" / name).write_text(content)
    with pytest.raises(BuildError, match=r"made elsewhere .*: build_config\.max_batch_size is 16, and 32"):
        build(work, place=Nowhere(python="python3"))


def test_a_users_own_folder_is_linked_and_never_written_to(tools: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.json").write_text("{}")
    (own / "model.safetensors").write_text("weights")
    made = replace(job(), commands=job().commands[1:], folder=own)
    work = tmp_path / "w"
    keys = step_keys(made, tools=container_tools(find_container("26.07"), "8.9"), source="own")
    run_job(made, keys, work=work, places=[Tools(python="python3")])
    assert (work / "source").resolve() == own
    assert sorted(path.name for path in own.iterdir()) == ["config.json", "model.safetensors"]
    build(work)  # the same work folder, now with fetched weights: the link goes, the user's folder stays
    assert not (work / "source").is_symlink()
    assert (own / "model.safetensors").read_text() == "weights"
