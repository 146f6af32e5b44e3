"""The KV cache that a checkpoint brings, what a narrow one needs, and where attention is not fused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.plans import llm_plan
from tests.support.tiny_checkpoints import awq_tensors, write_model

from trtbuild import preflight
from trtbuild.build.flags import build_flags
from trtbuild.build.jobs import JobOptions, plan_job
from trtbuild.catalog.gpus import find_gpu
from trtbuild.catalog.versions import find_container
from trtbuild.errors import ModelSourceError
from trtbuild.plan.model import Plan
from trtbuild.plan.planner import make_plan
from trtbuild.repository.llmapi import llm_arguments
from trtbuild.spec import DeploymentSpec, LlmSpec, Target


def planned(
    llm: LlmSpec, *, target: Target, gpu: str = "h100", release: str = "26.07"
) -> tuple[Plan, DeploymentSpec]:
    spec = DeploymentSpec(models=(llm,), target=target)
    plan = make_plan(
        spec,
        target=target,
        target_reason="asked",
        gpu=find_gpu(gpu).gpu,
        container=find_container(release),
    )
    return plan, spec


def modelopt_folder(folder: Path, *, kv: str | None, **config: Any) -> Path:
    """A folder as modelopt exports it, without its weights."""
    write_model(folder, **config)
    (folder / "model.safetensors").unlink()
    quantization = {"quant_algo": "FP8", "kv_cache_quant_algo": kv, "exclude_modules": ["lm_head"]}
    text = json.dumps({"producer": {"name": "modelopt"}, "quantization": quantization})
    (folder / "hf_quant_config.json").write_text(text)
    return folder


def test_the_llm_api_plans_and_writes_the_kv_cache_that_the_checkpoint_was_quantised_for(
    tmp_path: Path,
) -> None:
    narrow = modelopt_folder(tmp_path / "narrow", kv="FP8", model_type="llama")
    wide = modelopt_folder(tmp_path / "wide", kv=None, model_type="llama")
    sizes = {}
    for folder in (narrow, wide):
        plan, _ = planned(LlmSpec(model=str(folder), quant="fp8"), target=Target.LLMAPI)
        llm = plan.llms[0]
        sizes[folder] = llm.kv_bytes_per_token
        asked = llm_arguments(llm, "1.2.1")["kv_cache_config"].get("dtype", "auto")
        assert asked == llm.kv_dtype == ("fp8" if folder is narrow else "auto")
    # 2 layers x 2 heads x 64 x key and value, in 1 and in 2 bytes
    assert sizes == {narrow: 512, wide: 1024}


def test_a_checkpoints_fp8_cache_meets_the_guard_of_models_with_biases(tmp_path: Path) -> None:
    folder = modelopt_folder(tmp_path / "qwen", kv="FP8")
    plan, _ = planned(LlmSpec(model=str(folder), quant="fp8"), target=Target.LLMAPI)
    found = next(finding for finding in plan.findings if finding.id == "kv.bias")
    assert "the checkpoint is quantised for a KV cache in FP8" in found.message
    assert "--kv-dtype" not in found.remedy  # it is not what brought it


@pytest.mark.parametrize("kv", ["NVFP4", "INT8"])
def test_a_checkpoints_cache_that_the_llm_api_cannot_be_planned_with_is_an_error(
    tmp_path: Path, kv: str
) -> None:
    folder = modelopt_folder(tmp_path / "model", kv=kv, model_type="llama")
    plan, _ = planned(LlmSpec(model=str(folder), quant="fp8"), target=Target.LLMAPI)
    assert [finding.id for finding in plan.errors] == ["kv.dtype"]


def test_a_published_sibling_by_modelopt_has_an_fp8_cache_unless_our_own_is_made() -> None:
    for calibrate, kv, size in ((False, "fp8", 65_536), (True, "auto", 131_072)):  # 32 layers x 8 x 128 x 2
        llm = LlmSpec(model="llama-3.1-8b", quant="fp8", calibrate=calibrate)
        plan, _ = planned(llm, target=Target.LLMAPI)
        assert (plan.llms[0].kv_dtype, plan.llms[0].kv_bytes_per_token) == (kv, size)


@pytest.mark.parametrize("kv", ["int8", "fp8"])
def test_a_narrow_cache_is_never_calibrated_on_weights_that_are_quantised(kv: str) -> None:
    # On the hub: quantize.py makes both from the 16-bit weights instead of converting the AutoAWQ sibling.
    job = plan_job(llm_plan(kv_dtype=kv), target=Target.ENGINE, version="1.2.1")
    step = next(command for command in job.commands if command.product == "checkpoint")
    line = " ".join(step.argv)
    assert job.llm.source == "Qwen/Qwen2.5-7B-Instruct"
    assert "quantize.py" in line
    assert (
        f"--qformat int4_awq --dtype float16 --tp_size 1 --awq_block_size 128 --kv_cache_dtype {kv}" in line
    )


def test_a_folder_of_quantised_weights_is_refused_with_a_narrow_cache(tmp_path: Path) -> None:
    section = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
    folder = write_model(tmp_path / "awq", awq_tensors(), quantization_config=section)
    llm = llm_plan(source=str(folder), kv_dtype="int8")
    with pytest.raises(ModelSourceError, match="a KV cache in int8 is calibrated with 16-bit weights"):
        plan_job(llm, target=Target.ENGINE, version="1.2.1")


@pytest.mark.parametrize(
    ("quant", "qformat"), [("bf16", "full_prec"), ("int8", "int8_wo"), ("int4", "int4_wo")]
)
def test_fp8_scales_come_from_quantize_py_where_the_weights_are_not_calibrated(
    quant: str, qformat: str
) -> None:
    llm = llm_plan(source="meta-llama/Llama-3.1-8B-Instruct", quant=quant, kv_dtype="fp8", dtype="bfloat16")
    job = plan_job(llm, target=Target.ENGINE, version="1.2.1", options=JobOptions(on_cpu=True))
    line = " ".join(next(c for c in job.commands if c.product == "checkpoint").argv)
    assert "quantize.py" in line
    assert f"--qformat {qformat} " in line
    assert "--kv_cache_dtype fp8" in line


@pytest.mark.parametrize("quant", ["awq", "fp8", "bf16"])
def test_a_model_that_trtllm_build_has_no_class_for_is_refused_however_it_is_quantised(
    tmp_path: Path, quant: str
) -> None:
    folder = write_model(tmp_path / "m", model_type="internlm3", architectures=["InternLM3ForCausalLM"])
    (folder / "model.safetensors").unlink()
    plan, spec = planned(LlmSpec(model=str(folder), quant=quant), target=Target.ENGINE)
    found = preflight.check(plan, spec)
    errors = [finding for finding in found if finding.severity == "error"]
    assert [finding.id for finding in errors] == ["format.model"]  # once, though the build would say it, too
    assert "--quant" not in errors[0].remedy
    assert "no target serves" in errors[0].remedy  # nor does the LLM API have the class


def test_turing_has_no_fused_attention_and_so_neither_reuse_nor_chunks() -> None:
    llm = LlmSpec(model="qwen2.5-1.5b", quant="awq", max_input_tokens=2048, concurrency=2)
    plan, spec = planned(llm, target=Target.ENGINE, gpu="t4", release="25.02")
    turing = plan.llms[0]
    assert (turing.kv_reuse, turing.chunked_context, turing.context_fmha) == (False, False, False)
    assert any("no fused attention for SM 7.5" in finding.message for finding in plan.findings)
    flags = build_flags(turing, "0.17.0", "awq")
    for flag in ("--context_fmha", "--use_paged_context_fmha"):
        assert flags[flags.index(flag) + 1] == "disable"
    ampere = planned(llm, target=Target.ENGINE, gpu="a100-sxm-80gb", release="25.02")[0].llms[0]
    assert ampere.context_fmha
    assert ampere.kv_reuse
    # 2 sequences x 12 heads x 2048² scores in 2 and in 4 bytes, and a step of the same 2048 tokens
    assert turing.activation_bytes - ampere.activation_bytes == 2 * 12 * 2048**2 * 6
    by_hand = plan.model_copy(update={"models": (turing.model_copy(update={"kv_reuse": True}),)})
    by_hand = by_hand.model_copy(update={"findings": ()})
    assert "kv.reuse" in {finding.id for finding in preflight.check(by_hand, spec)}
