import pytest

from trtbuild.catalog.formats import all_formats, all_kv_dtypes, find_format, find_kv_dtype, format_support
from trtbuild.catalog.gpus import find_gpu
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


def test_an_unknown_format_lists_the_choices() -> None:
    with pytest.raises(CatalogError) as caught:
        find_format("awk")
    assert "awq" in caught.value.remedies[0]
    assert any("nvfp4" in remedy for remedy in caught.value.remedies)
