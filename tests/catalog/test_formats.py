import pytest

from trtbuild.catalog.formats import (
    all_formats,
    all_kv_dtypes,
    find_format,
    find_kv_dtype,
    format_support,
    instead,
)
from trtbuild.catalog.gpus import all_gpus, find_gpu
from trtbuild.errors import CatalogError
from trtbuild.spec import Target


def test_formats_carry_the_fields_own_names() -> None:
    algos = {fmt.name: fmt.algo for fmt in all_formats()}
    assert algos["awq"] == "W4A16_AWQ"
    assert algos["w4a8-awq"] == "W4A8_AWQ"
    assert algos["gptq"] == "W4A16_GPTQ"
    assert algos["int8-sq"] == "W8A8_SQ_PER_CHANNEL"
    assert algos["int4"] == "W4A16"
    assert algos["fp8"] == "FP8"
    assert algos["nvfp4"] == "NVFP4"
    assert {fmt.name for fmt in all_formats() if fmt.calibrates} == {
        "int8-sq", "awq", "w4a8-awq", "fp8", "nvfp4",
    }  # fmt: skip


def test_every_row_has_a_source_and_a_target() -> None:
    for row in (*all_formats(), *all_kv_dtypes()):
        assert row.source or row.name == "auto"
        assert row.targets


@pytest.mark.parametrize(("alias", "name"), [("W4A16_AWQ", "awq"), ("int4_awq", "awq"), ("bfloat16", "bf16")])
def test_aliases_are_known(alias: str, name: str) -> None:
    assert find_format(alias).name == name


@pytest.mark.parametrize(
    ("fmt", "gpu", "target", "runs"),
    [
        ("fp8", "a100-80g", Target.ENGINE, False),  # FP8 begins with SM 8.9
        ("fp8", "l4", Target.ENGINE, True),
        ("fp8", "h100", Target.LLMAPI, True),
        ("bf16", "t4", Target.ENGINE, False),
        ("fp16", "t4", Target.ENGINE, True),
        ("awq", "t4", Target.ENGINE, True),
        ("awq", "a100-80g", Target.LLMAPI, True),
        ("awq", "b200", Target.ENGINE, False),  # SM 10.x refuses weight-only INT4
        ("int8", "b200", Target.ENGINE, False),
        ("int8", "a100-80g", Target.LLMAPI, False),  # only the compiled flow has it
        ("int8-sq", "t4", Target.ENGINE, False),
        ("w4a8-awq", "a100-80g", Target.ENGINE, False),
        ("w4a8-awq", "l40s", Target.LLMAPI, True),
        ("nvfp4", "h100", Target.ENGINE, False),
        ("nvfp4", "b200", Target.LLMAPI, True),
        ("fp8-block", "h100", Target.ENGINE, False),
        ("fp8-block", "h100", Target.LLMAPI, True),
        ("mxfp4", "h100", Target.LLMAPI, True),  # gpt_oss/README.md: bf16 activations on Hopper
        ("mxfp4", "l4", Target.LLMAPI, False),
        ("gptq", "h100", Target.LLMAPI, False),  # load_hf_quant_config passes over it
        ("gguf-q4_1", "l4", Target.ENGINE, False),
        ("awq", "l4", Target.LOCAL, False),
    ],
)
def test_support_by_format_gpu_and_target(fmt: str, gpu: str, target: Target, runs: bool) -> None:
    supported, reason = format_support(find_format(fmt), find_gpu(gpu).gpu, target)
    assert supported is runs
    assert bool(reason) is not runs


def test_what_nobody_has_shown_runs_with_a_remark() -> None:
    supported, reason = format_support(find_format("awq"), find_gpu("rtx-5090").gpu, Target.ENGINE)
    assert supported
    assert "nobody has shown" in reason


@pytest.mark.parametrize(
    ("kv", "gpu", "target", "runs"),
    [
        ("int8", "a100-80g", Target.ENGINE, True),
        ("int8", "b200", Target.ENGINE, False),
        ("int8", "a100-80g", Target.LLMAPI, False),
        ("fp8", "a100-80g", Target.ENGINE, False),
        ("fp8", "a100-80g", Target.LLMAPI, True),
        ("fp8", "l4", Target.ENGINE, True),
        ("fp8", "l4", Target.LOCAL, False),
    ],
)
def test_kv_types_by_gpu_and_target(kv: str, gpu: str, target: Target, runs: bool) -> None:
    assert format_support(find_kv_dtype(kv), find_gpu(gpu).gpu, target)[0] is runs


@pytest.mark.parametrize(
    ("fmt", "gpu", "version", "experts", "runs"),
    [
        ("mxfp4", "h100", "1.0.0", True, False),  # release notes: GPT-OSS came with 1.1
        ("mxfp4", "h100", "1.1.0", True, True),
        ("fp8-block", "rtx-5090", "1.1.0", False, False),  # pull request 9174 is of November 2025
        ("fp8-block", "rtx-5090", "1.2.0", False, True),
        ("fp8-block", "rtx-5090", "1.2.1", True, False),  # no grouped GEMM there before 1.3
        ("fp8-block", "l40s", "1.0.0", False, False),
        ("fp8-block", "l40s", "1.2.1", False, True),
        ("fp8-block", "l40s", "1.2.1", True, False),
        ("fp8-block", "h200", "1.0.0", True, True),
    ],
)
def test_support_follows_the_version_and_the_model(
    fmt: str, gpu: str, version: str, experts: bool, runs: bool
) -> None:
    found = format_support(
        find_format(fmt), find_gpu(gpu).gpu, Target.LLMAPI, version=version, experts=experts
    )
    assert found[0] is runs, found


def test_advice_is_what_that_gpu_and_target_take_and_reasons_name_no_format() -> None:
    names = {fmt.name for fmt in all_formats()} - {"fp8", "awq", "gptq", "int8", "int4"}
    for row in (*all_formats(), *all_kv_dtypes()):
        for gpu in all_gpus():
            for target in (Target.ENGINE, Target.LLMAPI):
                served, why = format_support(row, gpu, target)
                assert "use " not in why
                assert not names & set(why.split()) - {row.name}
                if served:
                    continue
                rows = all_kv_dtypes() if row in all_kv_dtypes() else all_formats()
                for name in instead(row, gpu, target):
                    other = next(each for each in rows if each.name == name)
                    assert format_support(other, gpu, target) == (True, "")


_BEGINS = {"Ampere (": 8.0, "Ada (": 8.9, "Hopper (": 9.0, "Blackwell (": 10.0}


def test_each_reason_fits_the_gpu_it_is_given_for() -> None:
    for row in (*all_formats(), *all_kv_dtypes()):
        for gpu in all_gpus():
            for target in (Target.ENGINE, Target.LLMAPI):
                _, why = format_support(row, gpu, target)
                # "begins with Ada" is no reason on a Blackwell
                for family, first in _BEGINS.items():
                    assert family not in why or gpu.capability < first, (row.name, gpu.name, why)


def test_an_unknown_format_lists_the_choices() -> None:
    with pytest.raises(CatalogError) as caught:
        find_format("awk")
    assert "awq" in caught.value.remedies[0]
    assert any("nvfp4" in remedy for remedy in caught.value.remedies)
