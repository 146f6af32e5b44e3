"""A runtime parameter asks for what the engine was not built for.

KV reuse and chunked context need `use_paged_context_fmha` ("When KV cache block reuse is set, model has to
be built with paged context FMHA support", tensorrtllm_backend issues 271 and 323); reuse does not go with an
INT8 KV cache (TensorRT-LLM issue 2166); a disabled KV cache keeps in-flight batching at a batch of one
(issue 2443), which needs packed prompts (tensorrtllm_backend issue 246); beams and medusa heads are built
in; an FP8 KV cache breaks models with biases on q, k and v (issue 4218).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.engines import EngineFiles
from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine

SEVERITY = "error"
_TRUE = frozenset({"true", "True", "TRUE", "1"})
_BIASED = ("Qwen2ForCausalLM", "QWenForCausalLM", "QWenLMHeadModel")


def check(repository: LintRepository) -> Iterator[Found]:
    """Parameters against the engine's build_config."""
    for model in repository.readable:
        files = repository.engine_files(model) if is_cpp_engine(model) else None
        if files is not None and files.config is not None and "build_config" in files.config:
            yield from _kv(model, files)
            yield from _packed(model, files)
            yield from _decoding(model, files)


def _kv(model: ModelFolder, files: EngineFiles) -> Iterator[Found]:
    wanted = [
        model.parameters[key]
        for key in ("enable_kv_cache_reuse", "enable_chunked_context")
        if _is_on(model, key)
    ]
    for parameter in wanted:
        if files.get("build_config.plugin_config.use_paged_context_fmha") is False:
            yield Found(
                model.at(parameter.place),
                f"{parameter.key} is {parameter.value}, and the engine has use_paged_context_fmha false",
                "the model stops at an assertion when it loads",
                f"build with --use_paged_context_fmha enable, or write {parameter.key} false",
            )
    algorithm = str(files.get("pretrained_config.quantization.kv_cache_quant_algo") or "").upper()
    if algorithm == "INT8" and _is_on(model, "enable_kv_cache_reuse"):
        yield Found(
            model.at(model.parameters["enable_kv_cache_reuse"].place),
            "enable_kv_cache_reuse with an INT8 KV cache",
            "the two are not supported together; without the assertion it crashes after some "
            "thousand requests",
            "build with an FP8 or 16-bit KV cache, or write enable_kv_cache_reuse false",
        )
    architecture = str(files.get("pretrained_config.architecture") or "")
    if algorithm == "FP8" and (architecture in _BIASED or files.get("pretrained_config.attn_bias") is True):
        yield Found(
            files.at("kv_cache_quant_algo"),
            f"an FP8 KV cache in {architecture or 'a model with biases on q, k and v'}",
            "keys reach past what one FP8 scale holds, and answers break",
            "build with --kv_cache_dtype auto; FP8 weights can stay",
        )
    if str(files.get("build_config.kv_cache_type") or "").upper().endswith("DISABLED"):
        kind = model.parameters.get("gpt_model_type")
        if kind is not None and kind.value.startswith("inflight"):
            yield Found(
                model.at(kind.place),
                f"gpt_model_type is {kind.value}, and the engine was built with kv_cache_type disabled",
                "the batch stays at one request, and metrics report no KV cache",
                "build with --kv_cache_type paged",
            )


def _packed(model: ModelFolder, files: EngineFiles) -> Iterator[Found]:
    kind = model.parameters.get("gpt_model_type")
    in_flight = kind is not None and kind.value.startswith("inflight")
    if in_flight and files.get("build_config.plugin_config.remove_input_padding") is False:
        yield Found(
            files.at("remove_input_padding"),
            f"the engine has remove_input_padding false, and gpt_model_type is {kind.value if kind else ''}",
            "in-flight batching sends packed prompts: each request ends with `input_ids: expected 2 dims, "
            "provided 1 dims`",
            "build with --remove_input_padding enable",
        )


def _decoding(model: ModelFolder, files: EngineFiles) -> Iterator[Found]:
    beams, built = model.parameters.get("max_beam_width"), files.number("build_config.max_beam_width")
    if beams is not None and beams.number is not None and built is not None and beams.number > built:
        yield Found(
            model.at(beams.place),
            f"max_beam_width is {beams.value}, and the engine was built for {built}",
            "the executor refuses it when the model loads",
            f"write {built}, or build with --max_beam_width {beams.value}",
        )
    share = model.parameters.get("gpu_weights_percent")
    streaming = files.get("build_config.weight_streaming")
    if share is not None and share.is_set and streaming is False and _below_one(share.value):
        yield Found(
            model.at(share.place),
            f"gpu_weights_percent is {share.value}, and the engine has weight_streaming false",
            "only engines built for it can leave weights in host memory; the model does not load",
            "build with --weight_streaming, or write 1.0",
        )


def _is_on(model: ModelFolder, key: str) -> bool:
    return key in model.parameters and model.parameters[key].value in _TRUE


def _below_one(text: str) -> bool:
    try:
        return float(text) < 1.0
    except ValueError:
        return False
