"""A build that is killed: at every change that it makes on the disk, inside every step, in every place."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.gpu_host import COMMIT, GpuHost, product_files
from tests.support.plans import llm_plan
from tests.support.tiny_checkpoints import safetensors_bytes

from trtbuild.build import steps as steps_module
from trtbuild.build.cache import container_tools, step_keys
from trtbuild.build.calibration import Calibration
from trtbuild.build.commands import Command, Recipe, llm_commands
from trtbuild.build.jobs import Job
from trtbuild.build.places import Container, Here, Place
from trtbuild.build.steps import BuildResult, run_job
from trtbuild.catalog.versions import find_container
from trtbuild.spec import Target

pytestmark = pytest.mark.slow
STEPS = ("fetch", "quantise", "lora-french", "tokenizer-info", "compile")


class AllHere(Here):
    def refuses(self, command: Command) -> str | None:
        return None


class AllInside(Container):
    def refuses(self, command: Command) -> str | None:
        return None


PLACES: Mapping[str, Place] = {"here": AllHere(python="python3"), "container": AllInside("image:26.07")}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuHost:
    host = GpuHost(tmp_path, monkeypatch)
    tool = (host.bin / "docker").read_text()
    host.put("python3", tool.replace("FAKE_NAME=docker", "FAKE_NAME=python3"))
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    (adapter / "adapter_model.safetensors").write_bytes(safetensors_bytes({"x": np.ones(2, np.float16)}))
    host.makes(job(tmp_path).commands)
    return host


def job(folder: Path) -> Job:
    """A build with every kind of step, of a small model."""
    llm = llm_plan(tp=2, weights_bytes=14)  # the fakes write 7 bytes a rank
    recipe = Recipe(
        "quantise", "awq", 128, revision=COMMIT, calibration_samples=1, loras=(("french", 8),), guided=True
    )
    commands = llm_commands(
        llm, target=Target.ENGINE, version="1.2.1", model_type="qwen2", recipe=recipe, examples="/examples"
    )
    texts = Calibration(("What an engine is compiled from is measured on texts.",), "test")
    return Job(llm, commands, recipe, calibration=texts, loras={"french": folder / "adapter"})


def build(work: Path, place: Place, *, on_line: Callable[[str], None] | None = None) -> BuildResult:
    made = job(work.parent)
    keys = step_keys(
        made,
        tools=container_tools(find_container("26.07"), "8.9"),
        source=f"{made.llm.source}@{COMMIT}",
        loras={"french": "0"},
    )
    return run_job(made, keys, work=work, places=[place], on_line=on_line)


def states(result: BuildResult) -> list[str]:
    return [event.state for event in result.events]


def forked(action: Callable[[], Any]) -> int:
    """Runs ``action`` in a forked process; returns its status as ``os.waitpid`` does."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("step", STEPS)
def test_a_build_that_is_killed_inside_a_step_loses_that_step_alone(
    host: GpuHost, tmp_path: Path, step: str, place: str
) -> None:
    work = tmp_path / "work"
    host.fault(f"{step}:hang")

    def kill_at_half(line: str) -> None:
        if line == f"HALF {step}":
            os.kill(os.getpid(), signal.SIGKILL)

    status = forked(lambda: build(work, PLACES[place], on_line=kill_at_half))
    assert os.WTERMSIG(status) == signal.SIGKILL
    with (work / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the step's process held it too, and ended with its parent
    host.fault(None)
    done = STEPS.index(step)
    assert host.steps() == list(STEPS[: done + 1])
    product = job(tmp_path).commands[done].product
    assert not (work / product).exists()
    assert states(build(work, PLACES[place])) == ["cached"] * done + ["done"] * (len(STEPS) - done)
    assert host.steps() == list(STEPS[done:])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fault", ["exit=3", "kill=9", "full", "empty", "missing"])
def test_a_step_that_fails_in_a_container_is_repeated_alone(
    host: GpuHost, tmp_path: Path, step: str, fault: str
) -> None:
    work = tmp_path / "work"
    host.fault(f"{step}:{fault}")
    assert forked(lambda: build(work, PLACES["container"])) != 0
    assert not (work / job(tmp_path).commands[STEPS.index(step)].product).exists()
    host.fault(None)
    done = STEPS.index(step)
    assert states(build(work, PLACES["container"])) == ["cached"] * done + ["done"] * (len(STEPS) - done)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets after how many changes of the file system the process kills itself, before the next."""
    left = [-1]

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return function(*args, **kwargs)

        return call

    for name in ("rename", "replace", "unlink", "write_text", "symlink_to", "mkdir"):
        monkeypatch.setattr(Path, name, counting(getattr(Path, name)))
    monkeypatch.setattr(steps_module.shutil, "rmtree", counting(steps_module.shutil.rmtree))
    yield lambda changes: left.__setitem__(0, changes)
    left[0] = -1


class Instant(AllHere):
    """Makes a step's product without a tool: the changes that are counted are the build's own."""

    def argv(self, command: Command, work: Path) -> list[str]:
        files = {f"{command.partial}/{name}": text for name, text in product_files(command).items()}
        words = [word for pair in files.items() for word in pair]
        return ["sh", "-c", MAKE, command.partial, str(work.parent / "made"), command.label, *words]


MAKE = 'echo $2 >>"$1"; mkdir "$0"; shift 2; while [ $# -gt 0 ]; do printf %s "$2" >"$1"; shift 2; done'


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_kill_before_any_change_of_the_folder_can_be_resumed_from(
    host: GpuHost, tmp_path: Path, counted: Callable[[int], None], rebuild: bool
) -> None:
    """A loop over every change, in a first build and in one that replaces all products."""
    place = Instant()
    changes = 0
    while True:
        folder = tmp_path / str(changes)
        work, made = folder / "work", folder / "made"
        folder.mkdir()
        (folder / "adapter").symlink_to(tmp_path / "adapter")
        if rebuild:
            old = job(folder)
            run_job(old, ["0" * 64] * len(STEPS), work=work, places=[place])
            made.unlink()

        def killed(work: Path = work, after: int = changes) -> None:
            counted(after)
            build(work, place)

        status = forked(killed)
        before = made.read_text().split() if made.exists() else []
        whole = [(work / command.product).is_dir() for command in job(folder).commands]
        result = build(work, place)
        # nothing that was finished is made again: at most the step that ran is repeated
        assert len(made.read_text().split()) <= len(STEPS) + 1
        assert set(states(result)) <= {"cached", "done"}
        assert states(build(work, place)) == ["cached"] * len(STEPS)
        left = [path.name for pattern in ("*.partial", "*.old", "*.key") for path in work.glob(pattern)]
        assert left == []
        if rebuild and not before:
            assert all(whole)  # the last good state is there until a step has something better
        if os.WIFEXITED(status):
            break
        changes += 1
    assert changes > 4 * len(STEPS)
