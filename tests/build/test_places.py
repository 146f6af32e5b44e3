"""Where steps run: docker's arguments, what each place refuses, and that no secret is among the words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.plans import llm_plan

from trtbuild.build import places as places_module
from trtbuild.build.commands import Command, Recipe, Step, llm_commands
from trtbuild.build.places import Container, Here
from trtbuild.spec import Target
from trtbuild.targets import HostGpu

TOOL = Path(__file__).parents[1] / "support" / "build_tools.py"
IMAGE = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def commands(recipe: Recipe | None = None) -> dict[Step, Command]:
    recipe = recipe or Recipe("convert", "awq", 128, source_quant="W4A16_GPTQ", revision=COMMIT)
    made = llm_commands(llm_plan(), target=Target.ENGINE, version="1.2.1", model_type="qwen2", recipe=recipe)
    return {command.step: command for command in made}


def options(argv: list[str]) -> dict[str, list[str]]:
    """docker run's options with their values, up to the image."""
    found: dict[str, list[str]] = {}
    words = argv[2 : argv.index(IMAGE)]
    while words:
        value = None if words[0] in ("--rm", "--init") else words[1]
        found.setdefault(words[0], []).append(value or "")
        words = words[1 if value is None else 2 :]
    return found


def test_a_step_in_the_container_gets_gpu_memory_user_and_nothing_from_the_network(tmp_path: Path) -> None:
    argv = Container(IMAGE, gpus=("0", "1"), user="1000:1000").argv(commands()[Step.COMPILE], tmp_path)
    assert argv[:2] == ["docker", "run"]
    assert argv[argv.index(IMAGE) + 1 :] == list(commands()[Step.COMPILE].argv)
    found = options(argv)
    assert found["--gpus"] == ['"device=0,1"']
    assert found["--network"] == ["none"]
    assert found["--user"] == ["1000:1000"]
    assert found["--shm-size"] == [str(1 << 30)]
    assert found["--volume"] == [f"{tmp_path}:/work"]
    assert found["--workdir"] == ["/work"]
    assert "HOME=/work/.home" in found["--env"]
    assert "HF_HUB_OFFLINE=1" in found["--env"]


def test_a_fetch_has_the_network_no_gpu_and_its_token_by_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    place = Container(IMAGE)
    argv = place.argv(commands()[Step.FETCH], tmp_path)
    found = options(argv)
    assert "--gpus" not in found
    assert "--network" not in found
    assert "HF_TOKEN" in found["--env"]
    assert not any("hf_secret" in word for word in argv)
    assert place.environment(commands()[Step.FETCH])["HF_TOKEN"] == "hf_secret"


def test_folders_that_links_lead_to_are_mounted_read_only(tmp_path: Path) -> None:
    """A folder of the hub's cache links every file on to a folder of blobs."""
    snapshot, blobs, work = tmp_path / "snapshot", tmp_path / "blobs", tmp_path / "work"
    for folder in (snapshot, blobs, work / "loras"):
        folder.mkdir(parents=True)
    (blobs / "abc").write_text("weights")
    (snapshot / "model.safetensors").symlink_to(blobs / "abc")
    (work / "source").symlink_to(snapshot)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (work / "loras" / "french").symlink_to(adapter)
    volumes = options(Container(IMAGE).argv(commands()[Step.CONVERT], work))["--volume"]
    assert volumes[1:] == [f"{adapter}:{adapter}:ro", f"{blobs}:{blobs}:ro", f"{snapshot}:{snapshot}:ro"]


def test_two_models_have_containers_of_their_own_and_one_model_always_the_same(tmp_path: Path) -> None:
    def name(work: str, step: Step) -> str:
        return options(Container(IMAGE).argv(commands()[step], tmp_path / work))["--name"][0]

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert name("a", Step.COMPILE) == name("a", Step.COMPILE)
    assert len({name("a", Step.COMPILE), name("b", Step.COMPILE), name("a", Step.CONVERT)}) == 3


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """docker on PATH, standing for the real one; returns the folder of its containers."""
    folder, state = tmp_path / "bin", tmp_path / "state"
    folder.mkdir()
    state.mkdir()
    path = folder / "docker"
    path.write_text(f'#!/bin/sh\nFAKE_NAME=docker exec {sys.executable} -S {TOOL} "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    files = {"config.json": "{}", "model.safetensors": "weights"}
    monkeypatch.setenv("FAKE_STATE", str(state))
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("FAKE_FACTS", json.dumps({"fetch": files}))
    return state


def test_a_container_that_an_earlier_run_left_is_removed_first(docker: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    command = commands()[Step.FETCH]
    place = Container(IMAGE)
    argv = place.argv(command, work)
    (docker / options(argv)["--name"][0]).write_text("left over")
    refused = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert refused.returncode == 125
    place.sweep(command, work)
    subprocess.run(argv, check=True, capture_output=True)
    assert json.loads((docker / "last.json").read_text())["image"] == IMAGE
    assert sorted(path.name for path in (work / "source.partial").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def gpus(*sms: str) -> tuple[HostGpu, ...]:
    return tuple(HostGpu("GPU", 1, sm) for sm in sms)


def test_the_container_place_refuses_what_it_cannot_do(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Container(IMAGE, sm="8.9")
    compile_, fetch = commands()[Step.COMPILE], commands()[Step.FETCH]
    monkeypatch.setattr(places_module, "detect_gpus", lambda: gpus())
    assert place.refuses(fetch) is None
    assert place.refuses(compile_) == "there is no NVIDIA GPU here"
    monkeypatch.setattr(places_module, "detect_gpus", lambda: gpus("8.6"))
    assert place.refuses(compile_) == "the GPUs here have compute capability 8.6, and the plan is for 8.9"
    monkeypatch.setattr(places_module, "detect_gpus", lambda: gpus("8.9", "8.9"))
    assert place.refuses(compile_) is None
    on_cpu = Recipe("quantise", "awq", 128, calibration_samples=8, quantiser="cpu")
    assert "trtbuild is not in the container" in str(place.refuses(commands(on_cpu)[Step.QUANTISE]))


def test_without_docker_the_container_place_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Container(IMAGE).refuses(commands()[Step.FETCH]) == "there is no docker on PATH"


def test_here_refuses_another_tensorrt_llm_than_the_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ = commands()[Step.COMPILE]
    assert Here().refuses(compile_) == "TensorRT-LLM is not installed"
    monkeypatch.setattr(places_module, "installed_version", lambda _: "0.9.0")
    found = Here(version="1.2.1").refuses(compile_)
    assert found == "TensorRT-LLM 0.9.0 is installed, and the plan is for 1.2.1"
    monkeypatch.setattr(places_module, "installed_version", lambda _: "1.2.1")
    assert Here(version="1.2.1").refuses(compile_) == "trtllm-build is not on PATH"
    assert "without its examples" in str(Here().refuses(commands()[Step.CONVERT]))


@pytest.mark.parametrize("missing", ["torch", "modelopt"])
def test_here_says_which_package_quantising_needs(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    def find_spec(name: str) -> Any:
        return None if name == missing else object()

    monkeypatch.setattr(places_module.importlib.util, "find_spec", find_spec)
    recipe = Recipe("quantise", "awq", 128, calibration_samples=8, quantiser="cpu")
    found = Here().refuses(commands(recipe)[Step.QUANTISE])
    assert found == f"the Python package {missing} is not installed (pip install 'trtbuild[build]')"


def test_here_replaces_python3_by_its_interpreter_and_keeps_later_steps_offline(tmp_path: Path) -> None:
    fetch, compile_ = commands()[Step.FETCH], commands()[Step.COMPILE]
    place = Here(python="/opt/python")
    assert place.argv(fetch, tmp_path)[0] == "/opt/python"
    assert place.argv(compile_, tmp_path)[0] == "trtllm-build"
    assert "HF_HUB_OFFLINE" not in place.environment(replace(fetch, env=())) or "HF_HUB_OFFLINE" in os.environ
    assert place.environment(compile_)["HF_HUB_OFFLINE"] == "1"
