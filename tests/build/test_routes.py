"""The way from a folder to a target, and the published siblings that are taken instead of calibrating."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trtbuild.build.checkpoints import Checkpoint
from trtbuild.build.routes import choose_sibling, hub_checkpoint, note_for_sibling, route, sibling_checkpoint
from trtbuild.catalog.models import all_models, find_model
from trtbuild.errors import ModelSourceError
from trtbuild.plan.quant_configs import SourceQuant
from trtbuild.spec import Target

AWQ = SourceQuant("awq", "awq", 4, 128, "W4A16_GPTQ")
GPTQ = SourceQuant("gptq", "gptq", 4, 128, "W4A16_GPTQ")


def folder(quant: SourceQuant | None = None, **changes: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "folder": Path("weights"),
        "kind": "hf",
        "model_type": "qwen2",
        "architecture": "Qwen2ForCausalLM",
        "dtype": "bfloat16",
        "size_bytes": 1,
        "quant": quant,
    }
    return Checkpoint(**{**values, **changes})


@pytest.mark.parametrize(
    ("quant", "target", "method"),
    [
        ("fp16", Target.ENGINE, "convert"),
        ("int8", Target.ENGINE, "convert"),
        ("int4", Target.ENGINE, "convert"),
        ("awq", Target.ENGINE, "quantise"),
        ("fp8", Target.ENGINE, "quantise"),
        ("bf16", Target.LLMAPI, "direct"),
        ("awq", Target.LLMAPI, "quantise"),
        ("nvfp4", Target.LLMAPI, "quantise"),
    ],
)
def test_sixteen_bit_weights_go_by_format_and_target(quant: str, target: Target, method: str) -> None:
    assert route(folder(), quant=quant, target=target, version="1.2.1").method == method


@pytest.mark.parametrize("quant", [AWQ, GPTQ])
def test_published_int4_is_converted_since_0_16_for_the_families_that_read_it(quant: SourceQuant) -> None:
    recipe = route(folder(quant), quant=quant.format, target=Target.ENGINE, version="0.16.0")
    assert (recipe.method, recipe.source_quant, recipe.group_size) == ("convert", "W4A16_GPTQ", 128)
    with pytest.raises(ModelSourceError, match=r"since TensorRT-LLM 0\.16\.0; this is qwen2 for 0\.15\.0"):
        route(folder(quant), quant=quant.format, target=Target.ENGINE, version="0.15.0")
    with pytest.raises(ModelSourceError, match="this is phi3"):
        route(folder(quant, model_type="phi3"), quant=quant.format, target=Target.ENGINE, version="1.2.1")


@pytest.mark.parametrize("quant", [AWQ, GPTQ, SourceQuant("compressed-tensors", "awq", 4, 128)])
def test_the_pytorch_flow_is_not_given_what_it_passes_over(quant: SourceQuant) -> None:
    with pytest.raises(ModelSourceError, match="passes over other configurations") as raised:
        route(folder(quant), quant=quant.format, target=Target.LLMAPI, version="1.2.1")
    assert any("--calibrate" in remedy for remedy in raised.value.remedies)


@pytest.mark.parametrize(
    "quant",
    [
        SourceQuant("modelopt", "fp8", 8, algo="FP8"),
        SourceQuant("modelopt", "awq", 4, 128),
        SourceQuant("fp8", "fp8-block", 8),
        SourceQuant("mxfp4", "mxfp4", 4, 32),
    ],
)
def test_what_the_pytorch_flow_reads_goes_straight_to_it(quant: SourceQuant) -> None:
    recipe = route(folder(quant), quant=quant.format, target=Target.LLMAPI, version="1.2.1")
    assert recipe.method == "direct"
    with pytest.raises(ModelSourceError) as raised:
        route(folder(quant), quant=quant.format, target=Target.ENGINE, version="1.2.1")
    assert "--target llmapi" in raised.value.remedies


def test_a_quantised_folder_is_not_quantised_again() -> None:
    with pytest.raises(ModelSourceError, match="not quantised again") as raised:
        route(folder(AWQ), quant="fp8", target=Target.ENGINE, version="1.2.1")
    assert raised.value.remedies[0] == "--quant awq"


def test_a_format_that_nothing_can_plan_says_so() -> None:
    rowwise = SourceQuant("fbgemm_fp8", "fp8-rowwise", 8)
    with pytest.raises(ModelSourceError, match="fp8-rowwise"):
        route(folder(rowwise), quant="fp8", target=Target.ENGINE, version="1.2.1")


def test_a_ready_checkpoint_is_compiled_and_nothing_else() -> None:
    ready = folder(SourceQuant("trtllm", "awq", 4, 64), kind="trtllm", tp=1)
    assert route(ready, quant="awq", target=Target.ENGINE, version="1.2.1").method == "ready"
    with pytest.raises(ModelSourceError, match="only the compiled flow reads"):
        route(ready, quant="awq", target=Target.LLMAPI, version="1.2.1")
    with pytest.raises(ModelSourceError, match="is in awq, and the plan is for fp8"):
        route(ready, quant="fp8", target=Target.ENGINE, version="1.2.1")


def test_formats_that_are_only_read_are_not_made() -> None:
    with pytest.raises(ModelSourceError, match="gptq is read from a checkpoint"):
        route(folder(), quant="gptq", target=Target.ENGINE, version="1.2.1")
    with pytest.raises(ModelSourceError, match="no weight-only INT8"):
        route(folder(), quant="int8", target=Target.LLMAPI, version="1.2.1")
    with pytest.raises(ModelSourceError, match="builds nothing"):
        route(folder(), quant="fp16", target=Target.LOCAL, version=None)


def test_a_published_checkpoint_whose_groups_no_rank_can_hold_is_not_taken() -> None:
    """11008 inputs over 4 GPUs are 21.5 groups of 128, as TensorRT-LLM issue 648 found after the download."""
    record = find_model("llama-2-7b")
    asked = {"quant": "awq", "target": Target.ENGINE, "version": "1.2.1"}
    assert choose_sibling(record, **asked, tp=2) is not None
    assert choose_sibling(record, **asked, tp=4) is None


def test_the_published_awq_sibling_is_taken_where_its_way_is_open() -> None:
    record = find_model("qwen-7b")
    sibling = choose_sibling(record, quant="awq", target=Target.ENGINE, version="1.2.1")
    assert sibling is not None
    assert sibling.repo == "Qwen/Qwen2.5-7B-Instruct-AWQ"
    assert "--calibrate makes our own" in note_for_sibling(sibling, record.id)
    assert choose_sibling(record, quant="awq", target=Target.ENGINE, version="0.15.0") is None
    assert choose_sibling(record, quant="awq", target=Target.LLMAPI, version="1.2.1") is None
    assert choose_sibling(record, quant="fp8", target=Target.ENGINE, version="1.2.1") is None
    assert choose_sibling(record, quant="awq", target=Target.LOCAL, version=None) is None


def test_only_nvidias_own_exports_serve_the_llm_api() -> None:
    record = find_model("llama-3.1-8b")
    sibling = choose_sibling(record, quant="fp8", target=Target.LLMAPI, version="1.2.1")
    assert sibling is not None
    assert sibling.repo.startswith("nvidia/")


@pytest.mark.parametrize("target", [Target.ENGINE, Target.LLMAPI])
@pytest.mark.parametrize("quant", ["awq", "gptq", "fp8", "fp8-block", "nvfp4"])
def test_a_sibling_is_taken_only_if_its_way_is_open(quant: str, target: Target) -> None:
    for record in all_models():
        sibling = choose_sibling(record, quant=quant, target=target, version="1.2.1")
        if sibling is not None:
            checkpoint = sibling_checkpoint(record, sibling)
            assert route(checkpoint, quant=quant, target=target, version="1.2.1").method in (
                "convert",
                "direct",
            )


def test_fp8_of_every_model_with_a_third_partys_fp8_is_quantised_here_for_the_engine() -> None:
    """The compiled flow has no converter for other people's FP8 (llama-3-8b, qwen2-7b and others)."""
    third_party = [
        record for record in all_models() if any(sibling.method == "fp8" for sibling in record.siblings)
    ]
    assert len(third_party) > 5
    for record in third_party:
        checkpoint, _ = hub_checkpoint(record, quant="fp8", target=Target.ENGINE, version="1.2.1")
        assert checkpoint.folder == Path(record.id)
        assert route(checkpoint, quant="fp8", target=Target.ENGINE, version="1.2.1").method == "quantise"


@pytest.mark.parametrize("target", [Target.ENGINE, Target.LLMAPI])
@pytest.mark.parametrize(
    "quant",
    [
        AWQ,
        GPTQ,
        SourceQuant("fp8", "fp8", 8),
        SourceQuant("fp8", "fp8-block", 8),
        SourceQuant("fbgemm_fp8", "fp8-rowwise", 8),
        SourceQuant("compressed-tensors", "fp8", 8),
        SourceQuant("compressed-tensors", "fp8-rowwise", 8),
        SourceQuant("compressed-tensors", "awq", 4, 128),
        SourceQuant("mxfp4", "mxfp4", 4, 32),
        SourceQuant("modelopt", "int8-sq", 8),
        SourceQuant("modelopt", "fp8", 8),
    ],
)
def test_another_target_or_format_is_named_only_where_it_then_works(
    quant: SourceQuant, target: Target
) -> None:
    for asked in (quant.format, "nvfp4"):
        for remedy in remedies(quant, asked, target):
            if remedy.startswith(("--target", "--quant")) and "16-bit" not in remedy:
                words = remedy.split()
                flags = dict(zip(words[::2], words[1::2], strict=True))
                to = Target(flags.get("--target", target.value))
                route(folder(quant), quant=flags.get("--quant", asked), target=to, version="1.2.1")


def remedies(quant: SourceQuant, asked: str, target: Target) -> tuple[str, ...]:
    try:
        route(folder(quant), quant=asked, target=target, version="1.2.1")
    except ModelSourceError as error:
        return error.remedies
    return ()
