"""What each TensorRT-LLM version's tools are called with: flags, converter paths, quantiser formats.

Read in NVIDIA/TensorRT-LLM: ``tensorrt_llm/commands/build.py`` at b8fc6633 (0.13 dev), 42a7b092 (0.16.0),
008b2b8d (0.18 to 0.19) and 65f1d153 (1.1 to 1.2); ``tensorrt_llm/plugin/plugin.py`` at 75057cd0 (0.14 dev),
548b5b73 (0.16), 16d2467e (0.17.0.post1) and c20322ff (1.1); ``examples/quantization/quantize.py`` at
c8c6df08. The tests hold every argument list against those parsers, which were extracted on their own.
"""

from __future__ import annotations

from trtbuild.catalog.versions import version_key
from trtbuild.errors import BuildError
from trtbuild.plan.model import LlmPlan

# model_type in config.json → folder of examples; the second name is where it lies from 0.19 on.
_CONVERTERS: dict[str, tuple[str, str]] = {
    "llama": ("llama", "core/llama"),
    "mistral": ("llama", "core/llama"),
    "mixtral": ("llama", "core/llama"),
    "qwen": ("qwen", "core/qwen"),
    "qwen2": ("qwen", "core/qwen"),
    "qwen2_moe": ("qwen", "core/qwen"),
    "qwen3": ("qwen", "core/qwen"),
    "qwen3_moe": ("qwen", "core/qwen"),
    "phi3": ("phi", "core/phi"),
    "gemma": ("gemma", "core/gemma"),
    "gemma2": ("gemma", "core/gemma"),
    "gemma3_text": ("gemma", "core/gemma"),
    "internlm2": ("internlm2", "core/internlm2"),
    "chatglm": ("chatglm", "core/glm-4-9b"),  # of all generations; contrib/chatglm-* hold a README each
    "baichuan": ("baichuan", "contrib/baichuan"),
    "falcon": ("falcon", "contrib/falcon"),
    "gptj": ("gptj", "contrib/gptj"),
}
_CHATGLM_VOCAB = 65_024  # of ChatGLM2 and 3; GLM-4 has 151,552
SIZES_TOLD = frozenset({"baichuan"})  # model types whose converter is told the size
_BAICHUAN1_VOCAB = 64_000  # Baichuan2 has 125,696
_BAICHUAN_7B_LAYERS = 32  # 13B has 40, and ALiBi in place of rotary positions
_GEMMA = ("gemma", "gemma2", "gemma3_text")
# Converters that calibrate an INT8 KV cache. ChatGLM's forgets its generation on the way, and Gemma's opens
# the model's folder as a SentencePiece file (tensorrt_llm/models/gemma/convert.py).
_INT8_KV = frozenset({
    "llama", "mistral", "mixtral", "qwen", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "baichuan",
})  # fmt: skip
# Further model types that trtllm-build has a class for (tensorrt_llm/models/__init__.py, MODEL_MAP), which
# quantize.py's checkpoints reach without a converter.
_CLASSES = frozenset({
    "arctic", "bloom", "cohere", "dbrx", "exaone", "gpt2", "gpt_bigcode", "gpt_neox", "granite", "granitemoe",
    "internlm", "mpt", "nemotron", "opt", "phi", "phimoe", "starcoder2",
})  # fmt: skip
_FIRST_VERSION = {"qwen3": "0.20.0", "qwen3_moe": "0.20.0", "gemma3_text": "0.20.0"}  # release notes

# Weight format → quantize.py's --qformat; TLLM tensorrt_llm/quantization/quantize_by_modelopt.py.
_QFORMATS = {"awq": "int4_awq", "w4a8-awq": "w4a8_awq", "fp8": "fp8", "int8-sq": "int8_sq", "nvfp4": "nvfp4"}

CALIBRATED_FORMATS = frozenset(_QFORMATS)

# Formats whose weights quantize.py leaves alone or only rounds, while it calibrates the KV cache.
_KV_QFORMATS = {"bf16": "full_prec", "fp16": "full_prec", "int8": "int8_wo", "int4": "int4_wo"}

# Quantiser formats whose sample count TensorRT-LLM cuts, whatever was asked for (quantize_by_modelopt.py).
AWQ_CALIBRATION_LIMIT = 32


def _before(version: str, other: str) -> bool:
    return version_key(version) < version_key(other)


def converter_path(model_type: str, version: str, examples: str) -> str:
    """Returns the path of convert_checkpoint.py for a ``model_type`` of config.json.

    Raises:
        BuildError: TensorRT-LLM ``version`` has no converter for it.
    """
    if model_type not in _CONVERTERS:
        known = ", ".join(sorted(_CONVERTERS))
        raise BuildError(
            f"no converter of TensorRT-LLM is known for model_type {model_type!r} (known: {known})",
            "--target llmapi, which reads the Hugging Face folder itself, if its list of models has this one",
            *(["--quant awq or fp8: quantize.py needs no converter"] if model_type in _CLASSES else []),
        )
    require_class(model_type, version)
    before, after = _CONVERTERS[model_type]
    folder = before if _before(version, "0.19.0") else f"models/{after}"
    return f"{examples}/{folder}/convert_checkpoint.py"


def converter_flags(
    llm: LlmPlan, version: str, *, model_type: str, layers: int, weight_only: str | None
) -> tuple[str, ...]:
    """Returns what convert_checkpoint.py of a family is called with; Gemma's has names of its own.

    Args:
        layers: of the model; tells sizes of a family apart.
        weight_only: ``int8`` or ``int4``; None for 16 bit.
    """
    if model_type in _GEMMA:
        flags = ["--ckpt-type", "hf", "--model-dir", "source", "--output-model-dir", "checkpoint.partial"]
        flags += ["--dtype", llm.dtype, "--world-size", str(llm.tp)]
        if weight_only is not None and _before(version, "0.19.0"):
            return (*flags, "--use-weight-only-with-precision", weight_only)
    else:
        flags = ["--model_dir", "source", "--output_dir", "checkpoint.partial"]
        flags += ["--dtype", llm.dtype, "--tp_size", str(llm.tp)]
    if model_type == "chatglm":
        flags += ["--chatglm_version", _glm_generation(llm)]
    if model_type == "baichuan":
        flags += ["--model_version", _baichuan_version(llm, layers)]
    if weight_only is not None:
        flags += ["--use_weight_only", "--weight_only_precision", weight_only]
    return tuple(flags)


def _glm_generation(llm: LlmPlan) -> str:
    """The converter would look for it in the name of the folder, which is ``source`` in a build."""
    if llm.vocab_size > _CHATGLM_VOCAB:
        return "glm4"
    return "chatglm2" if "chatglm2" in llm.source.lower() else "chatglm3"


def _baichuan_version(llm: LlmPlan, layers: int) -> str:
    """The converter would take every model for v1_13b."""
    generation = "v1" if llm.vocab_size <= _BAICHUAN1_VOCAB else "v2"
    return f"{generation}_{'7b' if layers <= _BAICHUAN_7B_LAYERS else '13b'}"


def require_int8_kv(model_type: str) -> None:
    """Raises where convert_checkpoint.py of a family calibrates no INT8 KV cache.

    Raises:
        BuildError: it does not.
    """
    if model_type not in _INT8_KV:
        raise BuildError(
            f"the converter of model_type {model_type!r} calibrates no INT8 KV cache",
            "leave --kv-dtype at auto",
            "--kv-dtype fp8 on a GPU with FP8 arithmetic: quantize.py calibrates it",
        )


def require_class(model_type: str, version: str) -> None:
    """Raises where trtllm-build cannot compile a ``model_type``, whichever way its checkpoint is made.

    Raises:
        BuildError: TensorRT-LLM ``version`` has no model class for it.
    """
    if model_type not in _CONVERTERS and model_type not in _CLASSES:
        raise BuildError(
            f"trtllm-build has no model class for model_type {model_type!r}, however it is quantised",
            "--target llmapi, if its list of models has this one",
        )
    first = _FIRST_VERSION.get(model_type)
    if first is not None and _before(version, first):
        raise BuildError(
            f"model_type {model_type!r} needs TensorRT-LLM {first} or later, and the plan is for {version}",
            f"take a container with TensorRT-LLM {first} or later",
        )


def quantiser_flags(llm: LlmPlan, version: str, quant: str, group_size: int | None) -> tuple[str, ...]:
    """Returns the flags of quantize.py that depend on format, group size, KV type and TP.

    Raises:
        BuildError: ``quant`` is not a calibrated format of this ``version``.
    """
    qformat = _QFORMATS.get(quant) or (_KV_QFORMATS.get(quant) if llm.kv_dtype == "fp8" else None)
    if qformat is None:
        raise BuildError(
            f"{quant!r} is not a format that is calibrated; those are {', '.join(sorted(_QFORMATS))}",
            "int8, int4 and 16 bit weights are made by the converter, gptq by GPTQModel",
        )
    if quant == "nvfp4" and _before(version, "0.17.0"):
        raise BuildError(f"nvfp4 came with TensorRT-LLM 0.17, and the plan is for {version}")
    flags = ["--qformat", qformat, "--dtype", llm.dtype, "--tp_size", str(llm.tp)]
    if group_size is not None and quant in ("awq", "w4a8-awq"):
        flags += ["--awq_block_size", str(group_size)]
    if llm.kv_dtype in ("int8", "fp8"):
        flags += ["--kv_cache_dtype", llm.kv_dtype]
    return tuple(flags)


def paged_context_fmha(llm: LlmPlan) -> bool:
    """Returns whether the engine is built with what KV reuse and chunked context need."""
    return llm.kv_reuse or llm.chunked_context


def build_flags(llm: LlmPlan, version: str, quant: str) -> tuple[str, ...]:
    """Returns the flags of trtllm-build. Every one whose default has changed between versions is written."""
    # The GEMM plugin serves layers that stay in 16 bit; with FP8 the docs say to leave it off, and NVFP4
    # has a value of its own.
    gemm = {"fp8": "disable", "nvfp4": "nvfp4"}.get(quant, llm.dtype)
    # Effective only with these formats, refused or switched off with a warning elsewhere (builder.py).
    fp8_attention = quant in ("fp8", "w4a8-awq", "nvfp4") and llm.kv_dtype == "fp8"
    flags = [
        *("--max_batch_size", str(llm.max_batch_size)),
        *("--max_input_len", str(llm.max_input_tokens)),
        *("--max_seq_len", str(llm.max_seq_len)),
        *("--max_num_tokens", str(llm.max_num_tokens)),
        *("--max_beam_width", "1"),
        *("--kv_cache_type", "paged"),
        *("--tokens_per_block", str(llm.tokens_per_block)),
        *("--gpt_attention_plugin", llm.dtype),
        *("--gemm_plugin", gemm),
        *("--context_fmha", "enable" if llm.context_fmha else "disable"),
        *("--remove_input_padding", "enable"),
        *("--use_paged_context_fmha", "enable" if paged_context_fmha(llm) else "disable"),
        *("--use_fp8_context_fmha", "enable" if fp8_attention else "disable"),
        *("--workers", str(llm.tp)),
        *("--log_level", "info"),
    ]
    if not _before(version, "0.16.0"):
        flags.append("--monitor_memory")  # its lines feed `trtbuild reconcile`
    return tuple(flags)
