"""Adapters are refused where nothing could choose or hold them, and what their cache takes is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.plans import llm_plan
from tests.support.tiny_checkpoints import safetensors_bytes

from trtbuild import preflight
from trtbuild.catalog.gpus import find_gpu
from trtbuild.catalog.models import find_model
from trtbuild.catalog.versions import find_container
from trtbuild.plan.architecture import from_record
from trtbuild.plan.model import Finding, GpuPlan, Plan
from trtbuild.preflight.lora import adapter_bytes
from trtbuild.spec import DeploymentSpec, LlmSpec, Target

QWEN_7B = "Qwen/Qwen2.5-7B-Instruct"
MIB = 1 << 20


def found(
    folder: Path, *, rank: int = 16, target: Target = Target.ENGINE, free: int = 8 << 30, **llm: Any
) -> dict[str, Finding]:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank}))
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes({"x": np.ones(2, np.float16)}))
    model = llm_plan(source=QWEN_7B, **llm)
    container, gpu = find_container("26.07"), find_gpu("l40s").gpu
    plan = Plan(
        target=target, target_reason="asked", gpu=GpuPlan(name=gpu.name, sm=gpu.sm, memory_bytes=48 << 30),
        container=container.release, trtllm_version=container.trtllm, models=(model,), ledger=(),
        free_bytes=free, fits=True, findings=(),
    )  # fmt: skip
    spec = DeploymentSpec(
        target=target, models=(LlmSpec(model=QWEN_7B, name=model.name, loras={"french": folder}),)
    )
    return {finding.id: finding for finding in preflight.check(plan, spec, checkpoints={})}


def test_an_adapters_bytes_are_rank_times_inputs_and_outputs() -> None:
    """q and o 2 × (3584 + 3584), k and v 2 × (3584 + 512), MLP 3 × (3584 + 18944): 90,112 a layer."""
    architecture = from_record(find_model(QWEN_7B))
    assert adapter_bytes(architecture, 16, 1) == 90_112 * 28 * 16 * 2


def test_what_the_cache_takes_and_how_a_request_names_an_adapter_is_said(tmp_path: Path) -> None:
    said = found(tmp_path / "fr", dtype="float16")["lora.cache"]
    assert said.severity == "info"
    assert "up to 77 MiB" in said.message  # 80,740,352 bytes
    assert "410 MiB" in said.message  # 5 % of 8 GiB
    assert "1024 MiB of host RAM" in said.message
    assert "lora_task_id" in said.message


@pytest.mark.parametrize(
    ("rule", "words", "remedy", "changes"),
    [
        ("lora.target", "no input chooses one", "--target engine", {"target": Target.LLMAPI, "quant": "fp8"}),
        ("lora.dtype", "computes in bfloat16", "--quant fp16 or awq", {"quant": "fp8", "dtype": "bfloat16"}),
        ("lora.rank", "rank 128", "rank 64 or less", {"rank": 128}),
        ("lora.cache", "does not load where not even one fits", "--concurrency", {"free": 1 << 30}),
    ],
)
def test_adapters_that_could_never_be_used_are_refused(
    tmp_path: Path, rule: str, words: str, remedy: str, changes: dict[str, Any]
) -> None:
    finding = found(tmp_path / "fr", **{"dtype": "float16", **changes})[rule]
    assert finding.severity == "error"
    assert words in finding.message
    assert remedy in finding.remedy
