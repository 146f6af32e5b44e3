"""Every preflight rule: what it finds, with which numbers, and which way out it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plans import llm_plan
from tests.support.tiny_checkpoints import awq_tensors, write_model

from trtbuild import preflight
from trtbuild.build.checkpoints import Checkpoint
from trtbuild.catalog.formats import find_format
from trtbuild.catalog.gpus import find_gpu
from trtbuild.catalog.models import all_models
from trtbuild.catalog.versions import find_container
from trtbuild.errors import PlanError
from trtbuild.plan.architecture import from_record
from trtbuild.plan.groups import choose_group, fits, quantised_linears
from trtbuild.plan.model import Finding, GpuPlan, LlmPlan, Plan
from trtbuild.plan.planner import make_plan
from trtbuild.plan.quant_configs import SourceQuant
from trtbuild.preflight import BuildHost
from trtbuild.spec import DeploymentSpec, LlmSpec, Target

GIB = 1 << 30


def plan_of(
    llm: LlmPlan, *, gpu: str = "h100", container: str = "26.07", target: Target = Target.ENGINE
) -> Plan:
    """A plan as it may lie in a file: whatever its numbers are."""
    row = find_gpu(gpu).gpu
    return Plan(
        target=target,
        target_reason="asked",
        gpu=GpuPlan(name=row.name, memory_bytes=row.memory_bytes, sm=row.sm),
        container=container,
        trtllm_version=find_container(container).trtllm,
        models=(llm,),
        ledger=(),
        free_bytes=0,
        fits=True,
        findings=(),
    )


def check(
    llm: LlmPlan,
    *,
    checkpoint: Checkpoint | None = None,
    host: BuildHost | None = None,
    **where: Any,
) -> dict[str, Finding]:
    """Findings by rule."""
    plan = plan_of(llm, **where)
    spec = DeploymentSpec(target=plan.target, models=(LlmSpec(model=llm.source, name=llm.name),))
    found = preflight.check(plan, spec, checkpoints={llm.name: checkpoint} if checkpoint else {}, host=host)
    assert len({finding.id for finding in found}) == len(found)
    return {finding.id: finding for finding in found}


# field_reports.md M3 and models.md "Odd widths for group 128": the TPs that fit group 128.
@pytest.mark.parametrize(
    ("model", "tps"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", {1}),  # 29,568 = 231 × 128
        ("Qwen/Qwen-14B-Chat", {1}),  # 13,696 = 107 × 128
        ("meta-llama/Llama-2-7b-chat-hf", {1, 2}),  # 11,008 = 86 × 128
        ("Qwen/Qwen2.5-7B-Instruct", {1, 2, 4}),  # 18,944 = 148 × 128; 28 heads end at 4
        (
            "meta-llama/Meta-Llama-3-8B-Instruct",
            {1, 2, 4, 8, 16},
        ),  # 14,336 = 112 × 128; 8 KV heads are copied at 16
        ("Qwen/Qwen2.5-0.5B-Instruct", {1}),  # o_proj reads 896 = 7 × 128
        ("microsoft/phi-4", {1, 2}),  # 10 KV heads
        ("HuggingFaceTB/SmolLM2-135M-Instruct", set()),  # 576 = 4.5 × 128
    ],
)
def test_the_tps_that_fit_group_128_are_those_of_the_public_reports(model: str, tps: set[int]) -> None:
    record = next(record for record in all_models() if record.id == model)
    arch, awq = from_record(record), find_format("awq")
    assert {tp for tp in (1, 2, 4, 8, 16) if fits(arch, awq, tp, 128)} == tps


def test_mig_slices_cannot_share_an_instance() -> None:
    llm = llm_plan("qwen", source="Qwen/Qwen2.5-7B-Instruct", tp=2)
    found = check(llm, gpu="a100-40g:2g.10gb")["tp.mig"]
    assert found.severity == "error"
    assert "A100-SXM-40GB:2g" in found.message
    assert "--tp 1 on a larger slice" in found.remedy
    assert "tp.mig" not in check(llm, gpu="a100-sxm-40gb")
    assert "tp.mig" not in check(llm_plan("qwen", source="Qwen/Qwen2.5-7B-Instruct"), gpu="a100-40g:3g.20gb")


def test_a_width_that_is_no_multiple_says_the_numbers_and_every_way_out() -> None:
    found = check(llm_plan("big", source="Qwen/Qwen2.5-72B-Instruct", tp=4))["tp.group-in"]
    assert found.severity == "error"
    # 29,568 / 4 = 7,392 = 57.75 × 128
    assert "mlp.proj reads 29568 inputs, 7392 on each of TP 4 = 57.75 groups of 128" in found.message
    assert "--tp 1 fits with groups of 128" in found.remedy
    assert "--tp 1, 2 fits with groups of 64" in found.remedy
    assert "padded to intermediate_size 29696" in found.remedy  # 58 × 512; what Qwen's own AWQ has


def test_packed_tiles_are_checked_along_the_outputs_too() -> None:
    found = check(llm_plan("big", source="Qwen/Qwen2.5-72B-Instruct", tp=4))["tp.group-out"]
    # 7,392 / 64 = 115.5: issue 2445's assertion on 3,696 bytes
    assert "mlp.gate has 29568 outputs, 7392 on each of TP 4 = 115.5 32-byte tiles" in found.message
    assert "so do mlp.fc, mlp.proj" in found.message


def test_a_smaller_group_is_taken_where_the_default_does_not_fit_and_refused_where_none_does() -> None:
    smol = "HuggingFaceTB/SmolLM2-135M-Instruct"
    alone = check(llm_plan("smol", source=smol))
    assert alone["tp.group"].severity == "info"
    assert "groups of 64 instead of 128" in alone["tp.group"].message  # 576 = 9 × 64
    split = check(llm_plan("smol", source=smol, tp=2))
    assert "--tp 1 fits with groups of 64" in split["tp.group-in"].remedy  # 576 / 2 = 4.5 × 64
    assert "9 attention heads and 3 KV heads" in split["tp.heads"].message


def test_weight_only_formats_are_padded_since_0_13_which_is_a_warning() -> None:
    llm = llm_plan("big", source="Qwen/Qwen2.5-72B-Instruct", quant="int4", tp=4)
    assert check(llm)["tp.group-out"].severity == "warning"
    assert check(llm, gpu="a100-sxm-80gb", container="24.08")["tp.group-out"].severity == "error"


def test_fp8_has_no_groups_and_fits_every_tp() -> None:
    found = check(llm_plan("big", source="Qwen/Qwen2.5-72B-Instruct", quant="fp8", tp=4))
    assert not [rule for rule in found if rule.startswith("tp.")]


@settings(deadline=None)  # a busy machine is no fault
@given(st.sampled_from(all_models()), st.sampled_from((1, 2, 4, 8)))
def test_the_chosen_group_divides_every_input_of_a_rank_whenever_any_group_does(record: Any, tp: int) -> None:
    arch, awq = from_record(record), find_format("awq")
    group = choose_group(arch, awq, tp)
    whole = {
        size
        for size in (128, 64)
        if all(
            linear.in_features % ((tp if linear.split == "in" else 1) * size) == 0
            for linear in quantised_linears(arch, awq)
        )
    }
    assert group in whole or not any(fits(arch, awq, tp, size) for size in (128, 64))


@pytest.mark.parametrize(
    ("gpu", "quant", "words"),
    [
        ("a100-sxm-80gb", "fp8", "SM 8.0: FP8 arithmetic begins with Ada"),
        ("l4", "nvfp4", "SM 8.9: FP4 arithmetic begins with Blackwell"),
        ("b200", "awq", "SM 10.0: trtllm-build refuses weight-only INT4 on SM 10.x"),
        ("b200", "int8-sq", "SM 10.0: trtllm-build refuses SmoothQuant on SM 10.x"),
    ],
)
def test_a_format_that_the_gpu_has_not_is_refused_with_those_it_has(gpu: str, quant: str, words: str) -> None:
    found = check(llm_plan(quant=quant), gpu=gpu)["format.gpu"]
    assert found.severity == "error"
    assert words in found.message
    assert "runs " in found.remedy


def test_a_format_that_the_target_has_not_is_refused() -> None:
    found = check(llm_plan(quant="int8-sq", kv_dtype="auto"), target=Target.LLMAPI)["format.gpu"]
    assert "the PyTorch flow has no SmoothQuant" in found.message


def test_what_nobody_has_shown_to_run_is_a_warning() -> None:
    found = check(llm_plan(quant="awq"), gpu="rtx-5090")["format.gpu"]
    assert found.severity == "warning"
    assert "nobody has shown it to run" in found.message


def test_a_container_without_the_target_or_for_other_gpus_names_one_that_does() -> None:
    found = check(llm_plan(quant="bf16", dtype="bfloat16"), container="25.04", target=Target.LLMAPI)
    assert "TensorRT-LLM 0.18.2 in container 25.04 has no target llmapi" in found["format.target"].message
    assert "container 26.07" in found["format.target"].remedy
    old = check(llm_plan(quant="fp8"), gpu="b200", container="24.12")["format.gpu"]
    assert "compute capability 10.0" in old.message
    assert "container 26.07 runs on it" in old.remedy


def test_int4_by_rounding_is_warned_of() -> None:
    assert "awq is better" in check(llm_plan(quant="int4"))["format.quality"].message


def test_a_model_without_a_converter_names_the_other_target() -> None:
    gpt_oss = llm_plan("oss", source="openai/gpt-oss-20b", quant="mxfp4", dtype="bfloat16")
    found = check(gpt_oss, gpu="b200")
    assert "format.model" in found
    assert "llmapi" in found["format.model"].remedy


@pytest.mark.parametrize("target", [Target.ENGINE, Target.LLMAPI])
def test_a_model_that_no_target_serves_is_sent_to_none_of_them(target: Target) -> None:
    found = check(
        llm_plan("v2", source="deepseek-ai/DeepSeek-V2-Lite-Chat", quant="bf16", dtype="bfloat16"),
        target=target,
    )
    assert "--target" not in found["format.model"].remedy
    assert "another model" in found["format.model"].remedy


@pytest.mark.parametrize(
    ("source", "container", "words", "remedy"),
    [  # NVIDIA's pages "Supported Models" of 1.0.0 and 1.2.1
        ("google/gemma-2-9b-it", "26.07", "no Gemma2ForCausalLM in TensorRT-LLM 1.2.1", "--target engine"),
        ("tiiuae/falcon-7b", "26.07", "no FalconForCausalLM", "--target engine"),
        ("microsoft/phi-4", "25.10", "no Phi3ForCausalLM in TensorRT-LLM 1.0.0", "container 25.12"),
        ("microsoft/phi-4", "26.07", None, ""),
        ("google/gemma-3-4b-it", "25.10", None, ""),
        ("Qwen/Qwen2.5-7B-Instruct", "25.10", None, ""),
    ],
)
def test_a_model_that_the_llm_api_does_not_load_is_refused_before_it_is_fetched(
    source: str, container: str, words: str | None, remedy: str
) -> None:
    llm = llm_plan("m", source=source, quant="bf16", dtype="bfloat16")
    found = check(llm, container=container, target=Target.LLMAPI)
    if words is None:
        assert "format.model" not in found
    else:
        assert words in found["format.model"].message
        assert remedy in found["format.model"].remedy


def test_fp8_keys_and_values_of_a_model_with_biases_are_refused() -> None:
    found = check(llm_plan(quant="fp8", kv_dtype="fp8"))["kv.bias"]
    assert found.severity == "error"
    assert "qwen2" in found.message
    llama = llm_plan("llama", source="meta-llama/Llama-3.1-8B-Instruct", quant="fp8", kv_dtype="fp8")
    assert "kv.bias" not in check(llama)


@pytest.mark.parametrize(
    ("quant", "kv_dtype", "words"),
    [
        ("int8", "int8", "paged context FMHA off for INT8 KV"),
        ("awq", "fp8", "FP8 context FMHA, which awq weights do not allow"),
    ],
)
def test_reuse_is_refused_with_a_kv_type_that_loses_it(quant: str, kv_dtype: str, words: str) -> None:
    llama = "meta-llama/Llama-3.1-8B-Instruct"
    lost = llm_plan("m", source=llama, quant=quant, kv_dtype=kv_dtype)
    found = check(lost)["kv.reuse"]
    assert found.message.startswith("m: KV reuse and chunked context")
    assert words in found.message
    assert "at least 2048 tokens" in found.remedy  # the longest prompt, then in one step
    kept = lost.model_copy(update={"kv_reuse": False, "chunked_context": False})
    assert "kv.reuse" not in check(kept)
    assert "kv.reuse" not in check(lost.model_copy(update={"quant": "fp8", "kv_dtype": "fp8"}))


# One sequence of 2,560 tokens is 80 blocks of 32; a block of this model is 32 × 57,344 B = 1.75 MiB.
@pytest.mark.parametrize(
    ("blocks", "severity", "words"),
    [
        (79, "error", "lower input + output to 2528 tokens together"),  # 79 × 32
        (
            80,
            "warning",
            "0.1 GiB more, or at most 1280 tokens a request",
        ),  # 80 × 1.75 MiB = 140 MiB; 2,560 / 2
        (159, "warning", "or at most 2544 tokens a request"),  # 159 × 32 / 2
        (160, None, ""),
    ],
)
def test_the_pool_holds_one_longest_sequence_and_should_hold_two(
    blocks: int, severity: str | None, words: str
) -> None:
    llm = llm_plan(kv_tokens=blocks * 32, kv_bytes=blocks * 32 * 57_344)
    found = check(llm).get("kv.pool")
    assert (found.severity if found else None) == severity
    if found is not None:
        assert f"{blocks} blocks of 32" in found.message
        assert "takes 80 blocks" in found.message
        assert words in found.remedy


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"chunked_context": False, "max_num_tokens": 1024},
            "a prompt of 2048 tokens must go through in one",
        ),
        ({"chunked_context": True, "max_num_tokens": 16}, "smaller than one KV block of 32 tokens"),
        ({"max_batch_size": 4096}, "4096 sequences each make a token"),
    ],
)
def test_num_tokens_bound_a_step(changes: dict[str, Any], words: str) -> None:
    # the third leaves num_tokens at 2,048; the second also has more sequences than tokens
    if changes.get("max_num_tokens") == 16:
        changes = {**changes, "max_batch_size": 8}
    found = check(llm_plan(**changes))["length.num-tokens"]
    assert found.severity == "error"
    assert words in found.message


def test_chunked_context_lets_a_long_prompt_pass() -> None:
    assert "length.num-tokens" not in check(llm_plan(chunked_context=True, max_num_tokens=512))


def test_lengths_fit_the_engine_and_the_model() -> None:
    short = check(llm_plan(max_seq_len=2304))["length.sequence"]
    assert "2048 tokens in and 512 out are 2560" in short.message
    assert "the answer to 256 tokens" in short.remedy
    long = check(llm_plan(max_seq_len=40_000, max_input_tokens=39_000))["length.context"]
    assert "40000 tokens, and the model was made for 32768" in long.message


def test_ram_and_disk_are_counted_for_the_build() -> None:
    host = BuildHost(ram_bytes=32 * GIB, disk_free_bytes=20 * GIB)
    found = check(llm_plan(quant="int8"), host=host)
    # 7,615,616,512 parameters × 2 B = 14.18 GiB; twice that and 8 GiB are 36.4 GiB
    assert "converting 14.2 GiB of weights takes about 36.4 GiB of host RAM" in found["host.ram"].message
    # 14.18 + 2 × 5.6 GB (5.22 GiB) + 2 GiB = 26.6 GiB
    assert "= 26.6 GiB, and 20.0 GiB are free" in found["host.disk"].message
    assert "free 6.6 GiB" in found["host.disk"].remedy
    assert not {"host.ram", "host.disk"} & set(
        check(llm_plan(quant="int8"), host=BuildHost(ram_bytes=64 * GIB, disk_free_bytes=100 * GIB))
    )


def test_of_a_published_checkpoint_its_own_size_is_counted(tmp_path: Path) -> None:
    host = BuildHost(ram_bytes=16 * GIB, disk_free_bytes=16 * GIB, build_dir=tmp_path)
    found = check(llm_plan(), host=host)
    # 5.6 GB (5.22 GiB) twice, and 8 GiB; three times 5.22 GiB and 2 GiB on the disk
    assert "converting 5.2 GiB of weights takes about 18.4 GiB of host RAM" in found["host.ram"].message
    assert "= 17.6 GiB, and 16.0 GiB are free" in found["host.disk"].message
    (tmp_path / "qwen-7b").mkdir()
    with (tmp_path / "qwen-7b" / "source").open("wb") as file:
        file.truncate(5 * GIB)
    assert "host.disk" not in check(llm_plan(), host=host)  # an earlier build has fetched them


@pytest.mark.parametrize(
    ("container", "driver", "severity"),
    [
        ("26.07", "590.48.01", None),
        ("26.07", "580.95.05", "warning"),  # CUDA 13.1 by minor-version compatibility
        ("26.07", "575.57.08", "error"),  # CUDA 13 needs branch 580
        ("25.04", "550.54.15", "warning"),  # CUDA 12.8 by minor-version compatibility
        ("25.04", "520.61.05", "error"),
    ],
)
def test_the_driver_is_held_against_the_container(container: str, driver: str, severity: str | None) -> None:
    found = check(llm_plan(), container=container, host=BuildHost(driver=driver)).get("host.driver")
    assert (found.severity if found else None) == severity
    if found is not None and driver.startswith("580"):
        assert "container 26.02" in found.remedy  # made for 580.95.05


def checkpoint(**changes: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "folder": Path("weights"),
        "kind": "hf",
        "model_type": "qwen2",
        "architecture": "Qwen2ForCausalLM",
        "dtype": "float16",
        "size_bytes": 5_000_000_000,
        "quant": SourceQuant("awq", "awq", 4, 128, "W4A16_GPTQ"),
    }
    return Checkpoint(**{**values, **changes})


def test_a_folder_in_another_format_than_asked_is_refused() -> None:
    found = check(llm_plan(quant="fp8"), checkpoint=checkpoint())["checkpoint.route"]
    assert "is in awq, and the plan is for fp8" in found.message
    assert "--quant awq" in found.remedy


def test_the_group_size_is_the_checkpoints_own() -> None:
    own = checkpoint(quant=SourceQuant("awq", "awq", 4, 64, "W4A16_GPTQ"))
    assert (
        "groups of 64, taken from the checkpoint"
        in check(llm_plan(), checkpoint=own)["checkpoint.group"].message
    )
    odd = checkpoint(quant=SourceQuant("awq", "awq", 4, 32, "W4A16_GPTQ"))
    found = check(llm_plan(), checkpoint=odd)["checkpoint.group"]
    assert found.severity == "error"
    assert "groups of 32; awq has kernels for 128 and 64" in found.message


def test_kv_scales_that_are_all_the_same_are_noticed() -> None:
    constant = checkpoint(quant=SourceQuant("modelopt", "fp8", 8), kv_scales=56, constant_kv_scale=1.0)
    asked = llm_plan("llama", source="meta-llama/Llama-3.1-8B-Instruct", quant="fp8", kv_dtype="fp8")
    found = check(asked, checkpoint=constant, target=Target.LLMAPI)["checkpoint.kv-scales"]
    assert found.severity == "warning"
    assert "all 56 KV scales of the checkpoint are 1" in found.message


def test_a_folder_on_this_machine_is_read_and_its_faults_are_findings(tmp_path: Path) -> None:
    def found(**config: Any) -> dict[str, Finding]:
        folder = write_model(tmp_path / "own", awq_tensors(group=64), **config)
        plan = plan_of(llm_plan(weights_path=str(folder), source=str(folder)))
        spec = DeploymentSpec(target=Target.ENGINE, models=(LlmSpec(model=str(folder), name="qwen-7b"),))
        return {finding.id: finding for finding in preflight.check(plan, spec)}

    awq = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}
    assert (
        "groups of 64, taken from the checkpoint"
        in found(quantization_config=awq)["checkpoint.group"].message
    )
    wrong = found(quantization_config={**awq, "group_size": 128})["checkpoint.unreadable"]
    assert wrong.severity == "error"
    assert "4 scales for 256 inputs, groups of 64" in wrong.message
    assert "set group_size to 64" in wrong.remedy


def test_what_the_planner_said_already_is_not_said_twice() -> None:
    spec = DeploymentSpec(
        target=Target.ENGINE, models=(LlmSpec(model="qwen-7b", quant="fp8", kv_dtype="fp8"),)
    )
    plan = make_plan(
        spec,
        target=Target.ENGINE,
        target_reason="asked",
        gpu=find_gpu("a100-sxm-80gb").gpu,
        container=find_container("26.07"),
    )
    said = {finding.id for finding in plan.findings}
    assert {"format.gpu", "kv.dtype", "kv.bias"} <= said
    assert not {"format.gpu", "kv.support", "kv.bias"} & {f.id for f in preflight.check(plan, spec)}


def test_errors_are_raised_together_with_their_ways_out() -> None:
    found = [
        Finding(id="tp.heads", severity="error", message="m: 7 heads", remedy="TP 1"),
        Finding(id="kv.pool", severity="warning", message="m: small", remedy="more"),
    ]
    with pytest.raises(PlanError, match=r"\[tp\.heads\] m: 7 heads") as raised:
        preflight.refuse_errors(found)
    assert raised.value.remedies == ("TP 1",)
    preflight.refuse_errors(found[1:])


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("model", "quant"),
    [
        ("deepseek-ai/DeepSeek-V3", "fp8-block"),
        ("deepseek-ai/DeepSeek-R1", "fp8-block"),
        ("moonshotai/Kimi-K2-Instruct", "fp8-block"),
        ("openai/gpt-oss-20b", "mxfp4"),
        ("openai/gpt-oss-120b", "mxfp4"),
    ],
)
def test_models_run_as_their_makers_published_them(model: str, quant: str, tp: int) -> None:
    """The latent of DeepSeek ends in half a block of 128 that no rank cuts; MXFP4's experts are padded."""
    native = llm_plan("big", source=model, quant=quant, tp=tp)
    found = check(native, target=Target.LLMAPI, gpu="b200")
    assert not [finding for finding in found.values() if finding.severity == "error"]


def test_a_block_that_a_rank_would_cut_is_refused() -> None:
    # 18,432 / 32 = 576 = 4.5 × 128
    cut = llm_plan("big", source="deepseek-ai/DeepSeek-V3", quant="fp8-block", tp=32)
    found = check(cut, target=Target.LLMAPI, gpu="b200")["tp.group-out"]
    assert "576 on each of TP 32 = 4.5 blocks of 128" in found.message
    assert found.remedy == "--tp 1, 2, 4, 8, 16 fits"


@pytest.mark.parametrize(
    ("tp", "words"),
    [  # 29,568 = 462 × 64 inputs of the MLP's last matrix, and as many outputs of its first
        (2, None),  # 14,784 = 231 × 64
        (4, "7392 on each of TP 4 = 115.5 tiles of 64 rows"),
        (8, "3696 on each of TP 8 = 115.5 32-byte tiles"),
    ],
)
def test_int8_rows_are_whole_tiles_where_nothing_pads_them(tp: int, words: str | None) -> None:
    """Issue 1833: Qwen2-72B in INT8 ends at "The number of rows must be a multiple of 64"."""
    llm = llm_plan(source="Qwen/Qwen2.5-72B-Instruct", quant="int8", tp=tp)
    found = check(llm, container="24.08")
    assert ("tp.group-out" not in found) is (words is None)
    if words is not None:
        assert found["tp.group-out"].severity == "error"
        assert words in found["tp.group-out"].message
        assert "--tp 1, 2" in found["tp.group-out"].remedy
    later = check(llm, container="26.07").get("tp.group-out")
    assert later is None or later.severity == "warning"  # padded since 0.13
