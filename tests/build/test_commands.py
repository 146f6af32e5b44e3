"""The commands of every version and format, held against NVIDIA's own argument parsers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.plans import llm_plan
from tests.support.trtllm_parsers import (
    SNAPSHOTS,
    convert_parser,
    family_convert_parser,
    gemma_convert_parser,
    quantize_parser,
    snapshot_of,
)

from trtbuild.build.commands import Command, Recipe, Step, llm_commands
from trtbuild.catalog.versions import containers
from trtbuild.errors import BuildError
from trtbuild.spec import Target

VERSIONS = tuple(dict.fromkeys(container.trtllm for container in containers()))
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def commands(
    version: str, recipe: Recipe, *, target: Target = Target.ENGINE, model_type: str = "qwen2", **changes: Any
) -> dict[Step, Command]:
    made = llm_commands(
        llm_plan(quant=recipe.quant, **changes),
        target=target,
        version=version,
        model_type=model_type,
        recipe=recipe,
    )
    return {command.step: command for command in made}


def arguments(command: Command) -> tuple[str, ...]:
    """The words after the tool."""
    return command.argv[2 if command.argv[0] == "python3" else 1 :]


def test_every_container_has_a_parser_to_be_held_against() -> None:
    known = {version for snapshot in SNAPSHOTS for version in snapshot.versions}
    assert set(VERSIONS) <= known


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("quant", ["fp16", "int8", "int4", "int8-sq", "awq", "gptq", "fp8"])
def test_trtllm_build_takes_what_the_plan_says(version: str, quant: str) -> None:
    made = commands(version, Recipe("convert", quant), tp=2)
    args = snapshot_of(version).parser().parse_args(arguments(made[Step.COMPILE]))
    assert (args.max_batch_size, args.max_num_tokens, args.max_seq_len) == (32, 2048, 2560)
    assert (args.max_input_len, args.tokens_per_block, args.workers) == (2048, 32, 2)
    assert args.use_paged_context_fmha == "enable"
    assert args.gemm_plugin == ("disable" if quant == "fp8" else "float16")
    assert (args.kv_cache_type, args.remove_input_padding, args.context_fmha) == ("paged", "enable", "enable")


@pytest.mark.parametrize(
    "version", [version for version in VERSIONS if version >= "0.17" or version[0] == "1"]
)
def test_nvfp4_has_a_gemm_plugin_of_its_own(version: str) -> None:
    made = commands(version, Recipe("quantise", "nvfp4", 16, calibration_samples=8))
    args = snapshot_of(version).parser().parse_args(arguments(made[Step.COMPILE]))
    assert args.gemm_plugin == "nvfp4"


@pytest.mark.parametrize(
    ("reuse", "chunked", "paged"),
    [(True, True, "enable"), (True, False, "enable"), (False, True, "enable"), (False, False, "disable")],
)
def test_paged_context_follows_what_needs_it(reuse: bool, chunked: bool, paged: str) -> None:
    made = commands("1.2.1", Recipe("convert", "awq"), kv_reuse=reuse, chunked_context=chunked)
    args = snapshot_of("1.2.1").parser().parse_args(arguments(made[Step.COMPILE]))
    assert args.use_paged_context_fmha == paged
    fact = next(fact for fact in made[Step.COMPILE].facts if fact.path.endswith("use_paged_context_fmha"))
    assert fact.value is (paged == "enable")


def test_fp8_attention_needs_fp8_keys_and_values_and_a_format_that_has_it() -> None:
    def fp8_attention(quant: str, kv_dtype: str) -> str:
        made = commands("1.2.1", Recipe("quantise", quant, 128, calibration_samples=8), kv_dtype=kv_dtype)
        return str(
            snapshot_of("1.2.1").parser().parse_args(arguments(made[Step.COMPILE])).use_fp8_context_fmha
        )

    assert fp8_attention("fp8", "fp8") == "enable"
    assert fp8_attention("fp8", "auto") == "disable"
    assert fp8_attention("awq", "fp8") == "disable"


@pytest.mark.parametrize(
    ("quant", "qformat"),
    [
        ("awq", "int4_awq"),
        ("fp8", "fp8"),
        ("int8-sq", "int8_sq"),
        ("w4a8-awq", "w4a8_awq"),
        ("nvfp4", "nvfp4"),
    ],
)
def test_quantize_py_takes_the_calibrated_formats(quant: str, qformat: str) -> None:
    recipe = Recipe("quantise", quant, 64, calibration_samples=32, calibration_tokens=256)
    command = commands("1.2.1", recipe, tp=2)[Step.QUANTISE]
    args = quantize_parser().parse_args(arguments(command))
    assert (args.qformat, args.calib_size, args.calib_max_seq_length) == (qformat, 32, 256)
    assert (args.model_dir, args.calib_dataset, args.output_dir) == (
        "source",
        "calibration",
        "checkpoint.partial",
    )
    assert (args.tp_size, args.awq_block_size) == (2, 64 if "awq" in quant else None)
    assert command.needs_gpu


def test_our_own_quantiser_has_the_same_command_line() -> None:
    from trtbuild.build.quantise import _parser

    recipe = Recipe("quantise", "awq", 64, calibration_samples=32, quantiser="cpu")
    command = commands("1.2.1", recipe)[Step.QUANTISE]
    assert command.argv[:3] == ("python3", "-m", "trtbuild.build.quantise")
    args = _parser().parse_args(command.argv[3:])
    assert (args.qformat, args.awq_block_size, args.export_format) == ("int4_awq", 64, "tensorrt_llm")
    assert not command.needs_gpu


@pytest.mark.parametrize(
    ("quant", "switch"), [("int8", "int8"), ("int4", "int4"), ("fp16", None), ("bf16", None)]
)
def test_converters_make_weight_only_formats(quant: str, switch: str | None) -> None:
    command = commands("1.0.0", Recipe("convert", quant))[Step.CONVERT]
    args = convert_parser().parse_args(arguments(command))
    assert (args.use_weight_only, args.weight_only_precision) == (switch is not None, switch)


def test_a_quantised_source_is_converted_without_quantisation_flags() -> None:
    command = commands("1.0.0", Recipe("convert", "awq", 128, source_quant="W4A16_GPTQ"))[Step.CONVERT]
    args = convert_parser().parse_args(arguments(command))
    assert not args.use_weight_only
    assert ("quantization.quant_algo", "W4A16_GPTQ") in [(fact.path, fact.value) for fact in command.facts]


@pytest.mark.parametrize(
    ("version", "model_type", "path"),
    [
        ("0.12.0", "qwen2", "/app/tensorrt_llm/examples/qwen/convert_checkpoint.py"),
        ("0.17.0.post1", "llama", "/app/tensorrt_llm/examples/llama/convert_checkpoint.py"),
        ("1.2.1", "mistral", "/app/tensorrt_llm/examples/models/core/llama/convert_checkpoint.py"),
        ("0.20.0", "qwen3", "/app/tensorrt_llm/examples/models/core/qwen/convert_checkpoint.py"),
        ("1.2.1", "chatglm", "/app/tensorrt_llm/examples/models/core/glm-4-9b/convert_checkpoint.py"),
    ],
)
def test_converters_lie_where_the_version_has_them(version: str, model_type: str, path: str) -> None:
    made = commands(version, Recipe("convert", "fp16"), model_type=model_type)
    assert made[Step.CONVERT].argv[1] == path


@pytest.mark.parametrize(
    ("source", "vocab_size", "generation"),
    [
        ("THUDM/chatglm2-6b", 65_024, "chatglm2"),
        ("THUDM/chatglm3-6b", 65_024, "chatglm3"),
        ("/models/mine", 65_024, "chatglm3"),
        ("THUDM/glm-4-9b-chat", 151_552, "glm4"),
    ],
)
def test_the_converter_of_chatglm_is_told_the_generation(
    source: str, vocab_size: int, generation: str
) -> None:
    """It looks for it in the folder's name otherwise, which is `source` for all."""
    made = commands(
        "1.2.1", Recipe("convert", "fp16"), model_type="chatglm", source=source, vocab_size=vocab_size
    )
    argv = made[Step.CONVERT].argv
    assert argv[argv.index("--chatglm_version") + 1] == generation


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("quant", ["bf16", "int8"])
def test_gemmas_converter_has_words_of_its_own(version: str, quant: str) -> None:
    model_type = "gemma2"
    command = commands(version, Recipe("convert", quant), model_type=model_type, tp=2)[Step.CONVERT]
    args = gemma_convert_parser(old="/models/" not in command.argv[1]).parse_args(arguments(command))
    assert (args.ckpt_type, args.model_dir, args.output_model_dir) == ("hf", "source", "checkpoint.partial")
    assert args.world_size == 2
    assert args.weight_only_precision == ("int8" if quant == "int8" else None)


@pytest.mark.parametrize("quant", ["bf16", "int4"])
@pytest.mark.parametrize("model_type", ["phi3", "gptj", "falcon", "internlm2", "chatglm", "baichuan"])
def test_other_families_converters_take_what_the_plan_says(model_type: str, quant: str) -> None:
    command = commands("1.2.1", Recipe("convert", quant), model_type=model_type)[Step.CONVERT]
    args = family_convert_parser(model_type).parse_args(arguments(command))
    assert args.use_weight_only == (quant == "int4")


@pytest.mark.parametrize(
    ("vocab_size", "layers", "model_version"),
    [(64_000, 32, "v1_7b"), (64_000, 40, "v1_13b"), (125_696, 32, "v2_7b"), (125_696, 40, "v2_13b")],
)
def test_the_converter_of_baichuan_is_told_the_model(
    vocab_size: int, layers: int, model_version: str
) -> None:
    """It takes all for v1_13b otherwise, which has ALiBi where the 7B models have rotary positions."""
    made = llm_commands(
        llm_plan(quant="bf16", vocab_size=vocab_size),
        target=Target.ENGINE,
        version="1.2.1",
        model_type="baichuan",
        recipe=Recipe("convert", "bf16"),
        layers=layers,
    )
    argv = made[0].argv
    assert argv[argv.index("--model_version") + 1] == model_version


@pytest.mark.parametrize("model_type", ["phi3", "gemma2", "chatglm"])
def test_an_int8_cache_where_the_converter_calibrates_none_is_refused(model_type: str) -> None:
    with pytest.raises(BuildError, match="calibrates no INT8 KV cache"):
        commands("1.2.1", Recipe("convert", "bf16"), model_type=model_type, kv_dtype="int8")


def test_glm_in_transformers_own_form_has_no_converter() -> None:
    """GlmForCausalLM; the converter knows the form with code of its own, and GLM-10B under this type."""
    with pytest.raises(BuildError, match="no converter"):
        commands("1.2.1", Recipe("convert", "bf16"), model_type="glm")


def test_an_unknown_model_type_and_a_version_too_old_are_refused_with_a_way_out() -> None:
    with pytest.raises(BuildError, match=r"no converter .* 'mamba'") as unknown:
        commands("1.2.1", Recipe("convert", "fp16"), model_type="mamba")
    assert any("llmapi" in remedy for remedy in unknown.value.remedies)
    with pytest.raises(BuildError, match=r"'qwen3' needs TensorRT-LLM 0\.20\.0"):
        commands("0.19.0", Recipe("convert", "fp16"), model_type="qwen3")
    with pytest.raises(BuildError, match=r"nvfp4 came with TensorRT-LLM 0\.17"):
        commands("0.16.0", Recipe("quantise", "nvfp4", 16, calibration_samples=8))


def test_a_fetch_takes_no_pickled_weights_and_no_secret_in_its_arguments() -> None:
    command = commands("1.2.1", Recipe("convert", "fp16", revision=COMMIT))[Step.FETCH]
    assert command.argv[3:6] == ("Qwen/Qwen2.5-7B-Instruct", COMMIT, "source.partial")
    assert not any(word.endswith((".bin", ".pt", ".pth")) for word in command.argv)
    assert command.env == ("HF_TOKEN", "HF_ENDPOINT")


def test_the_llm_api_reads_the_folder_itself_and_a_quantised_one_in_hugging_face_form() -> None:
    assert set(commands("1.2.1", Recipe("direct", "bf16", revision=COMMIT), target=Target.LLMAPI)) == {
        Step.FETCH
    }
    recipe = Recipe("quantise", "awq", 128, calibration_samples=32, quantiser="cpu")
    command = commands("1.2.1", recipe, target=Target.LLMAPI)[Step.QUANTISE]
    assert command.argv[-2:] == ("--export_format", "hf")
    assert "hf_quant_config.json" in command.expects


def test_a_ready_checkpoint_is_only_compiled() -> None:
    made = commands("1.2.1", Recipe("ready", "awq", 128))
    assert set(made) == {Step.COMPILE}
    assert made[Step.COMPILE].argv[:3] == ("trtllm-build", "--checkpoint_dir", "source")


@pytest.mark.parametrize("version", VERSIONS)
def test_loras_are_converted_and_compiled_for(version: str) -> None:
    recipe = Recipe("convert", "fp16", loras=(("french", 8), ("legal", 16)))
    made = llm_commands(
        llm_plan(quant="fp16"), target=Target.ENGINE, version=version, model_type="llama", recipe=recipe
    )
    assert [command.product for command in made] == ["checkpoint", "lora-french", "lora-legal", "engine"]
    args = snapshot_of(version).parser().parse_args(arguments(made[-1]))
    assert args.lora_dir == ["loras/french", "loras/legal"]
    assert (args.lora_plugin, args.max_lora_rank) == ("float16", 16)


def test_guided_decoding_needs_a_version_that_has_it() -> None:
    made = commands("1.2.1", Recipe("convert", "fp16", guided=True))
    assert made[Step.TOKENIZER_INFO].expects == ("xgrammar_tokenizer_info.json",)
    with pytest.raises(BuildError, match=r"came with TensorRT-LLM 0\.19\.0; the plan is for 0\.18\.2"):
        commands("0.18.2", Recipe("convert", "fp16", guided=True))
