"""From a plan to built engines: fakes for the tools, real checks in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.plans import llm_plan
from tests.support.tiny_checkpoints import awq_tensors, write_model

from trtbuild.build.commands import Command, Step
from trtbuild.build.jobs import JobOptions
from trtbuild.build.places import Here
from trtbuild.build.runner import BuildSettings, build_model, default_places, dry_run
from trtbuild.catalog.gpus import find_gpu
from trtbuild.catalog.versions import find_container
from trtbuild.errors import BuildError, ModelSourceError
from trtbuild.plan.model import GpuPlan, LlmPlan, Plan
from trtbuild.spec import Target

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def plan_of(llm: LlmPlan, target: Target = Target.ENGINE) -> Plan:
    gpu = find_gpu("l4").gpu
    return Plan(
        target=target,
        target_reason="asked",
        gpu=GpuPlan(name=gpu.name, memory_bytes=gpu.memory_bytes, sm=gpu.sm),
        container="26.07",
        trtllm_version=find_container("26.07").trtllm,
        models=(llm,),
        ledger=(),
        free_bytes=0,
        fits=True,
        findings=(),
    )


@dataclass(frozen=True)
class Fetcher(Here):
    """Puts a prepared folder where the fetch goes, and takes no other step."""

    write: Callable[[Path], Any] = write_model

    def refuses(self, command: Command) -> str | None:
        return None if command.step is Step.FETCH else "no GPU"

    def argv(self, command: Command, work: Path) -> list[str]:
        self.write(work / command.partial)
        return ["true"]


def settings(tmp_path: Path, write: Any = None, **options: Any) -> BuildSettings:
    places = None if write is None else (Fetcher(write=write),)
    return BuildSettings(tmp_path / "build", JobOptions(revision=COMMIT, **options), places=places)


def test_a_fetch_that_holds_what_the_catalogue_says_goes_on(tmp_path: Path) -> None:
    llm = llm_plan()
    given = settings(tmp_path, lambda folder: write_model(folder, awq_tensors(), quantization_config=AWQ))
    result = build_model(llm, plan_of(llm), given).result
    assert [event.state for event in result.events] == ["done", "left", "left"]
    assert result.work == tmp_path / "build" / "qwen-7b"


def test_a_fetch_of_something_else_stops_before_the_long_steps(tmp_path: Path) -> None:
    llm = llm_plan()
    with pytest.raises(BuildError, match="holds fp16 weights, and the build was planned for others"):
        build_model(llm, plan_of(llm), settings(tmp_path, write_model))


def test_act_order_in_a_fetched_folder_stops_before_the_long_steps(tmp_path: Path) -> None:
    llm = llm_plan()
    section = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}
    with pytest.raises(ModelSourceError, match="act-order"):
        build_model(
            llm,
            plan_of(llm),
            settings(tmp_path, lambda folder: write_model(folder, quantization_config=section)),
        )


def test_groups_that_do_not_fit_the_plans_tp_are_found_when_they_are_known(tmp_path: Path) -> None:
    llm = llm_plan(tp=2)
    narrow = {"intermediate_size": 384, "quantization_config": AWQ}  # 384 / 2 = 192 = 1.5 × 128
    with pytest.raises(BuildError, match="groups of 128, which its layers do not fit at TP 2"):
        build_model(
            llm, plan_of(llm), settings(tmp_path, lambda folder: write_model(folder, awq_tensors(), **narrow))
        )


def test_a_dry_run_prints_the_containers_commands_where_nothing_can_run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    llm = llm_plan()
    fetch, convert, compile_ = dry_run(llm, plan_of(llm), settings(tmp_path))
    assert "Qwen/Qwen2.5-7B-Instruct-AWQ" in fetch
    assert convert[:2] == ["docker", "run"]
    image = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
    assert compile_[compile_.index(image) + 1] == "trtllm-build"
    assert not (tmp_path / "build").exists()


def test_places_are_tried_here_first_and_know_the_plans_gpu_and_version() -> None:
    here, container = default_places(plan_of(llm_plan()))
    assert (here.name, container.name) == ("here", "container")
    assert getattr(here, "version", None) == "1.2.1"
    assert getattr(here, "sm", None) == getattr(container, "sm", None) == "8.9"


def test_a_users_folder_is_known_by_its_content(tmp_path: Path) -> None:
    own = write_model(tmp_path / "own", awq_tensors(), quantization_config=AWQ)
    llm = llm_plan(weights_path=str(own))
    given = settings(tmp_path, write_model)
    first = build_model(llm, plan_of(llm), given).result
    assert [event.state for event in first.events] == ["left", "left"]
    memo = json.loads((first.work / ".hashes.json").read_text())
    assert len(memo) == 2  # config.json and model.safetensors
    tensors = awq_tensors()
    tensors["model.layers.0.self_attn.q_proj.scales"] = np.full((2, 256), 2, np.float16)
    write_model(own, tensors, quantization_config=AWQ)
    build_model(llm, plan_of(llm), given)
    assert len(json.loads((first.work / ".hashes.json").read_text())) == 4


def test_the_target_local_builds_nothing(tmp_path: Path) -> None:
    local = plan_of(llm_plan()).model_copy(update={"target": Target.LOCAL, "container": None})
    with pytest.raises(BuildError, match="builds nothing"):
        build_model(llm_plan(), local, settings(tmp_path))
