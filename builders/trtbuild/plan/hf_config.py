"""Hugging Face's config.json → `Architecture`: the one place that knows how families spell their fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trtbuild.catalog.models import MlaShape, ModelShape, MoeShape
from trtbuild.errors import ModelSourceError
from trtbuild.plan.architecture import Architecture, from_shape

Config = Mapping[str, Any]

# Other families' names for llama's fields, first found wins.
_NAMES = {
    "layers": ("num_hidden_layers", "num_layers", "n_layer", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "ffn": ("intermediate_size", "ffn_hidden_size", "n_inner"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels", "head_size"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "context": ("max_position_embeddings", "seq_length", "n_positions", "model_max_length", "n_ctx"),
}
# Families that are computed exactly. Others with llama's fields are taken as llama-like, and that is said.
KNOWN_TYPES = (
    "llama", "mistral", "mixtral", "qwen", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma", "gemma2",
    "gemma3", "gemma3_text", "phi3", "deepseek_v2", "deepseek_v3", "kimi_k2", "internlm2", "chatglm", "baichuan",
    "falcon", "gptj", "gpt_oss", "smollm3",
)  # fmt: skip
_OTHER_KINDS = {
    "t5": "an encoder-decoder", "mt5": "an encoder-decoder", "bart": "an encoder-decoder",
    "mbart": "an encoder-decoder", "marian": "an encoder-decoder", "whisper": "a speech encoder-decoder",
    "bert": "an encoder", "roberta": "an encoder", "xlm-roberta": "an encoder", "distilbert": "an encoder",
    "mamba": "a state-space model", "mamba2": "a state-space model", "rwkv": "a recurrent model",
    "clip": "an image-text encoder", "vit": "an image model", "jamba": "a hybrid of attention and state space",
}  # fmt: skip


def read_hf_config(folder: Path) -> dict[str, Any]:
    """A folder's config.json.

    Raises:
        ModelSourceError: no such folder or file, or not a JSON object.
    """
    path = folder / "config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise ModelSourceError(
            f"{folder} has no config.json that can be read, so nothing is known of the model",
            "give the folder that transformers' save_pretrained wrote, or a catalogue name",
        ) from None
    except (ValueError, RecursionError) as error:
        raise ModelSourceError(f"{path} is not valid JSON: {error}", "fetch the file again") from None
    if not isinstance(data, dict):
        raise ModelSourceError(f"{path} holds a {type(data).__name__}, not an object", "fetch the file again")
    return data


def parse_hf_config(config: Config) -> Architecture:
    """The architecture that a config.json describes.

    Raises:
        ModelSourceError: not a decoder-only language model, a field missing or senseless.
    """
    model_type = str(config.get("model_type") or "").lower()
    _refuse_other_kinds(config, model_type)
    text = config.get("text_config") or config.get("llm_config")
    if isinstance(text, Mapping):
        inner = {**_TEXT_DEFAULTS.get(model_type, {}), **text}
        inner.setdefault("torch_dtype", config.get("torch_dtype") or config.get("dtype"))
        inner.setdefault(
            "tie_word_embeddings", config.get("tie_word_embeddings", model_type.startswith("gemma"))
        )
        architecture = parse_hf_config({**inner, "model_type": inner.get("model_type") or model_type})
        note = f"config.json is of a multimodal model ({model_type}); only its text tower is planned"
        return replace(architecture, assumption=_join(architecture.assumption, note))
    shape = _shape(config, model_type)
    architecture = from_shape(shape)
    notes = []
    if model_type not in KNOWN_TYPES:
        shown = model_type or "without a model_type"
        notes.append(
            f"config.json's model_type {shown} is not a known family; it is taken as llama-like "
            "(two norms a layer, gated MLP), so weights may be off by a little"
        )
    quant = _native_quant(config)
    return replace(architecture, native_quant=quant, assumption="; ".join(notes))


# transformers writes only what differs from a class default into text_config.
_TEXT_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131_072,
        "sliding_window": 4096, "model_type": "gemma3_text",
    },
}  # fmt: skip


def _refuse_other_kinds(config: Config, model_type: str) -> None:
    kind = _OTHER_KINDS.get(model_type)
    if kind is None and config.get("is_encoder_decoder"):
        kind = "an encoder-decoder"
    if kind is None and any(str(name).endswith("ForMaskedLM") for name in config.get("architectures") or ()):
        kind = "an encoder"
    if kind is not None:
        raise ModelSourceError(
            f"config.json describes {kind} ({model_type or 'no model_type'}); "
            "only decoder-only language models are served",
            "choose a chat or completion model; `trtbuild models` lists some",
        )


def _shape(config: Config, model_type: str) -> ModelShape:
    hidden, heads = _size(config, "hidden"), _size(config, "heads")
    mla = _mla(config)
    head_dim = _optional(config, "head_dim") or _head_dim(hidden, heads)
    if mla is not None:
        head_dim = mla.nope + mla.rope
    layers = _size(config, "layers")
    moe = _moe(config, model_type, layers)
    gated = model_type not in ("falcon", "gptj", "gpt_neox", "gpt2", "phi", "starcoder2", "mpt")
    window, windowed = _window(config, model_type, layers)
    rope = config.get("rope_scaling")
    return ModelShape.model_validate(
        {
            "type": model_type or "unknown",
            "class": str((config.get("architectures") or ["unknown"])[0]),
            "layers": layers,
            "hidden": hidden,
            "ffn": _ffn(config, model_type, hidden),
            "heads": heads,
            "kv_heads": _kv_heads(config, model_type, heads),
            "head_dim": head_dim,
            "vocab": _size(config, "vocab"),
            "tied": bool(config.get("tie_word_embeddings", model_type in _TIED_BY_DEFAULT)),
            "context": _context(config),
            "dtype": str(config.get("torch_dtype") or config.get("dtype") or "bfloat16").removeprefix(
                "torch."
            ),
            "rope_scaling": rope if isinstance(rope, Mapping) else None,
            "qkv_bias": _qkv_bias(config, model_type),
            "o_bias": bool(config.get("attention_bias")) and model_type not in ("qwen2", "qwen2_moe"),
            "qk_norm": model_type in ("qwen3", "qwen3_moe", "gemma3", "gemma3_text"),
            "sinks": model_type == "gpt_oss",
            "window": window,
            "windowed_layers": windowed,
            "gated_mlp": gated,
            "mlp_bias": bool(config.get("mlp_bias")) or model_type == "gptj",
            "parallel_attention": bool(config.get("parallel_attn")) or model_type == "gptj",
            "lm_head_bias": model_type == "gptj",
            "moe": moe,
            "mla": mla,
        }
    )


_TIED_BY_DEFAULT = ("gemma", "gemma2", "gemma3", "gemma3_text", "falcon")


def _size(config: Config, field: str) -> int:
    value = _optional(config, field)
    if value is None:
        names = " or ".join(_NAMES[field][:2])
        raise ModelSourceError(
            f"config.json has no {names}, so the model's size is not known",
            "fetch the model's own config.json; adapters and partial configs do not have it",
        )
    return value


def _optional(config: Config, field: str) -> int | None:
    for name in _NAMES[field]:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 40:
            raise ModelSourceError(
                f"config.json: {name} is {value!r}; a positive whole number is needed", "fetch the file again"
            )
        return value
    return None


def _head_dim(hidden: int, heads: int) -> int:
    if hidden % heads:
        raise ModelSourceError(
            f"config.json: hidden size {hidden} is no multiple of {heads} heads, and no head_dim is given",
            "fetch the model's own config.json",
        )
    return hidden // heads


def _kv_heads(config: Config, model_type: str, heads: int) -> int:
    if model_type == "falcon" and not config.get("new_decoder_architecture"):
        return 1 if config.get("multi_query", True) else heads
    if model_type == "chatglm" and not config.get("multi_query_attention"):
        return heads
    return _optional(config, "kv_heads") or heads


def _ffn(config: Config, model_type: str, hidden: int) -> int:
    found = _optional(config, "ffn")
    if found is None:
        if model_type in ("falcon", "gptj", "gpt2", "gpt_neox"):
            return 4 * hidden
        return _size(config, "ffn")
    # Qwen1 counts gate and up together.
    return found // 2 if model_type == "qwen" else found


def _context(config: Config) -> int:
    """The longest context; rope scaling that names the length it starts from may stretch it."""
    context = _size(config, "context")
    rope = config.get("rope_scaling")
    if isinstance(rope, Mapping):
        original, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
        if isinstance(original, int) and isinstance(factor, (int, float)) and 1 < factor < 1024:
            return max(context, int(original * factor))
    return context


def _qkv_bias(config: Config, model_type: str) -> bool:
    if model_type in ("qwen", "qwen2", "qwen2_moe"):
        return True  # though config.json does not say so
    if model_type == "chatglm":
        return bool(config.get("add_qkv_bias"))
    return bool(config.get("attention_bias") or config.get("qkv_bias"))


def _window(config: Config, model_type: str, layers: int) -> tuple[int | None, int]:
    """The sliding window that is in effect, and the number of layers that have it."""
    window = config.get("sliding_window")
    context = _optional(config, "context") or 0
    if not isinstance(window, int) or window <= 0 or window >= context:
        return None, 0
    opt_in = model_type in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")
    if config.get("use_sliding_window", not opt_in) is False:
        return None, 0
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return window, sum(kind == "sliding_attention" for kind in kinds)
    if model_type in ("gemma3", "gemma3_text"):
        pattern = config.get("sliding_window_pattern") or 6
        return window, layers - layers // int(pattern)
    if model_type in ("gemma2", "gpt_oss"):
        return window, -(-layers // 2)
    return window, layers


def _mla(config: Config) -> MlaShape | None:
    if not config.get("kv_lora_rank"):
        return None
    try:
        return MlaShape(
            kv_rank=config["kv_lora_rank"],
            q_rank=config.get("q_lora_rank"),
            nope=config["qk_nope_head_dim"],
            rope=config["qk_rope_head_dim"],
            v=config["v_head_dim"],
        )
    except KeyError as error:
        raise ModelSourceError(f"config.json has kv_lora_rank (MLA) but no {error.args[0]}") from None


def _first(config: Config, *names: str) -> int | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _moe(config: Config, model_type: str, layers: int) -> MoeShape | None:
    experts = _first(config, "num_local_experts", "n_routed_experts", "num_experts")
    if experts is None or experts == 1:
        return None
    ffn = _first(config, "moe_intermediate_size") or _optional(config, "ffn")
    active = _first(config, "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk")
    if ffn is None or active is None:
        raise ModelSourceError(
            f"config.json names {experts} experts but not their width and how many are active",
            "fetch the model's own config.json",
        )
    dense = _first(config, "first_k_dense_replace") or 0
    only = config.get("mlp_only_layers")
    if isinstance(only, list):
        dense += len(only)
    step = _first(config, "decoder_sparse_step") or 1
    if step > 1:
        dense += layers - dense - (layers - dense) // step
    shared_ffn = _first(config, "shared_expert_intermediate_size")
    return MoeShape(
        experts=experts,
        active=active,
        ffn=ffn,
        shared=_first(config, "n_shared_experts") or 0,
        shared_ffn=shared_ffn,
        shared_gate=shared_ffn is not None,
        dense_layers=dense,
        router_bias=model_type == "gpt_oss",
        correction_bias=config.get("topk_method") == "noaux_tc" or config.get("scoring_func") == "sigmoid",
        expert_bias=model_type == "gpt_oss",
    )


def _native_quant(config: Config) -> str | None:
    """The catalogue's name of the format that the checkpoint itself is in."""
    section = config.get("quantization_config")
    if not isinstance(section, Mapping):
        return None
    method = str(section.get("quant_method") or "").lower()
    algo = str(section.get("quant_algo") or "").upper()
    if method == "fp8" and section.get("weight_block_size"):
        return "fp8-block"
    by_algo: dict[str, str] = {"W4A16_AWQ": "awq", "NVFP4": "nvfp4", "FP8": "fp8", "W4A8_AWQ": "w4a8-awq"}
    return by_algo.get(algo) or {"awq": "awq", "gptq": "gptq", "fp8": "fp8", "mxfp4": "mxfp4"}.get(method)


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
