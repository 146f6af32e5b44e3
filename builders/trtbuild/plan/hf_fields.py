"""Fields of config.json by their many names: the one place that knows how families spell them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trtbuild.catalog.models import MlaShape, ModelShape, MoeShape
from trtbuild.errors import ModelSourceError

Config = Mapping[str, Any]

_MOST = 1 << 40  # of any size; `plan.architecture` has closer bounds
_DTYPES = ("float16", "bfloat16", "float32")

# Other families' names for llama's fields; the first that is there is taken.
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
# Families that are counted exactly; others with llama's fields are taken as llama-like.
KNOWN_FAMILIES = (
    "llama", "mistral", "mixtral", "qwen", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma", "gemma2",
    "gemma3", "gemma3_text", "phi3", "deepseek_v2", "deepseek_v3", "kimi_k2", "internlm2", "chatglm",
    "baichuan", "falcon", "gptj", "gpt_oss", "smollm3", "llama4_text",
)  # fmt: skip
# Text towers that are one of those under another name.
_SAME_AS = {
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2", "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe",
}  # fmt: skip
_QWEN_BIASED = ("qwen", "qwen2", "qwen2_moe")
_OWN_NORM_OF_HEADS = ("qwen3", "qwen3_moe", "gemma3", "gemma3_text")
_TIED_BY_DEFAULT = ("gemma", "gemma2", "gemma3", "gemma3_text", "falcon", "smollm3")
_UNGATED = (
    "falcon", "gptj", "gpt_neox", "gpt2", "gpt_bigcode", "opt", "bloom", "phi", "starcoder2", "mpt",
    "nemotron",
)  # fmt: skip
_FOUR_TIMES_WIDE = ("falcon", "gptj", "gpt2", "gpt_neox", "gpt_bigcode")
# What transformers takes where config.json names no longest context (configuration_<family>.py).
_DEFAULT_CONTEXTS = {
    "falcon": 2048, "llama": 2048, "gptj": 2048, "gpt_neox": 2048, "deepseek_v2": 2048, "gpt_bigcode": 1024,
    "mistral": 131_072, "mixtral": 131_072, "gpt_oss": 131_072, "qwen2": 32_768, "qwen2_moe": 32_768,
    "qwen3": 32_768, "qwen3_moe": 32_768, "smollm3": 32_768, "gemma": 8192, "gemma2": 8192, "phi3": 4096,
    "deepseek_v3": 4096,
}  # fmt: skip
# Families in which transformers puts experts of its own number where config.json names none.
_ALWAYS_EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek_v3", "kimi_k2")
_SHARED_EXPERTS = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
_EXPERTS = re.compile(r"(^|_)experts?($|_(num|count)$)")
# What TensorRT-LLM knows (layers/attention, RotaryScalingType), and whether it needs a factor.
_ROPE_TYPES = {
    "linear": True, "dynamic": True, "yarn": True, "llama3": True, "longrope": False, "su": False,
    "mrope": False, "default": False, "none": False,
}  # fmt: skip
_WINDOW_IS_OPT_IN = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")


def family_of(model_type: str) -> str:
    """The family whose rules a model_type follows."""
    return _SAME_AS.get(model_type, model_type)


def shape_of(config: Config, model_type: str) -> ModelShape:
    """The shape that a text model's config describes.

    Raises:
        ModelSourceError: a field is missing or senseless.
    """
    family = family_of(model_type)
    hidden, heads, layers = _size(config, "hidden"), _size(config, "heads"), _size(config, "layers")
    mla = _mla(config, hidden // heads)
    head_dim = mla.nope + mla.rope if mla else _optional(config, "head_dim") or _head_dim(hidden, heads)
    window, windowed = _window(config, family, layers)
    return ModelShape.model_validate(
        {
            "type": family or "unknown",
            "class": next(iter(classes_of(config)), "unknown"),
            "layers": layers,
            "hidden": hidden,
            "ffn": _ffn(config, family, hidden),
            "heads": heads,
            "kv_heads": _kv_heads(config, family, heads),
            "head_dim": head_dim,
            "vocab": _size(config, "vocab"),
            "tied": _flag(config, "tie_word_embeddings", family in _TIED_BY_DEFAULT),
            "context": _context(config, family),
            "dtype": _dtype(config),
            "rope_scaling": _rope_scaling(config),
            "qkv_bias": _qkv_bias(config, family),
            "o_bias": _flag(config, "attention_bias") and family not in _QWEN_BIASED,
            "qk_norm": family in _OWN_NORM_OF_HEADS,
            "sinks": family == "gpt_oss",
            "window": window,
            "windowed_layers": windowed,
            "gated_mlp": family not in _UNGATED,
            "mlp_bias": _flag(config, "mlp_bias") or family == "gptj",
            "parallel_attention": _flag(config, "parallel_attn") or family == "gptj",
            "lm_head_bias": family == "gptj",
            "rotary_dim": config.get("rotary_dim") if family == "gptj" else None,
            "moe": _moe(config, family, layers),
            "mla": mla,
        }
    )


def classes_of(config: Config) -> list[str]:
    """The classes that config.json's ``architectures`` names, the one that is loaded first.

    Raises:
        ModelSourceError: not a list of names.
    """
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelSourceError(
            f"config.json: architectures is {names!r}; a list of class names is needed",
            "fetch the file again",
        )
    return names


def _flag(config: Config, name: str, default: bool = False) -> bool:
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ModelSourceError(
            f"config.json: {name} is {value!r}; true or false is needed", "fetch the file again"
        )
    return value


def _dtype(config: Config) -> str:
    value = config.get("torch_dtype") or config.get("dtype") or "bfloat16"
    name = str(value).removeprefix("torch.")
    if name not in _DTYPES:
        raise ModelSourceError(
            f"config.json: torch_dtype is {value!r}; a checkpoint's is one of {', '.join(_DTYPES)}",
            "fetch the model's own config.json; what quantises it belongs into quantization_config",
        )
    return name


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
        return _sensible(name, value)
    return None


def _sensible(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MOST:
        shown = repr(value) if not isinstance(value, int) or abs(value) < _MOST else "far too large"
        raise ModelSourceError(
            f"config.json: {name} is {shown}; a positive whole number is needed", "fetch the file again"
        )
    return value


def _first(config: Config, *names: str) -> int | None:
    """The first of these fields that is there; a list holds a number for each layer.

    Raises:
        ModelSourceError: a list whose layers differ.
    """
    for name in names:
        value = config.get(name)
        if isinstance(value, list) and value:
            if any(item != value[0] for item in value):
                raise ModelSourceError(
                    f"config.json: {name} differs from layer to layer; the plan counts them from one layer",
                    "choose a model whose layers are alike; `trtbuild models` lists some",
                )
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return _sensible(name, value)
    return None


def _head_dim(hidden: int, heads: int) -> int:
    if hidden % heads:
        raise ModelSourceError(
            f"config.json: hidden size {hidden} is no multiple of {heads} heads, and no head_dim is given",
            "fetch the model's own config.json",
        )
    return hidden // heads


def _kv_heads(config: Config, family: str, heads: int) -> int:
    if family == "falcon" and not config.get("new_decoder_architecture"):
        return 1 if config.get("multi_query", True) else heads
    if family == "gpt_bigcode" and config.get("multi_query", True):
        return 1
    if family == "chatglm" and not config.get("multi_query_attention"):
        return heads
    kv_heads = _optional(config, "kv_heads") or heads
    if heads % kv_heads:
        raise ModelSourceError(
            f"config.json: {heads} attention heads cannot share {kv_heads} KV heads; the first must be a "
            "multiple of the second",
            "fetch the model's own config.json",
        )
    return kv_heads


def _ffn(config: Config, family: str, hidden: int) -> int:
    if family == "llama4_text" and (dense := _first(config, "intermediate_size_mlp")):
        return dense
    found = _optional(config, "ffn")
    if found is None:
        return 4 * hidden if family in _FOUR_TIMES_WIDE else _size(config, "ffn")
    return found // 2 if family == "qwen" else found  # Qwen1 counts gate and up together


def default_context(config: Config, model_type: str) -> int | None:
    """What transformers takes where a config names no longest context; None: it names one, or unknown."""
    return None if _optional(config, "context") else _DEFAULT_CONTEXTS.get(family_of(model_type))


def stretched_context(config: Config, model_type: str) -> int | None:
    """What YaRN makes of the length that it starts from, where ``max_position_embeddings`` says less.

    TensorRT-LLM does not follow: its tables end at ``max_position_embeddings``, and the LLM API cuts a longer
    max_seq_len there with a warning (_torch/pyexecutor/model_engine.py, _infer_max_seq_len_from_config).
    """
    rope, context = _rope_scaling(config), _context(config, family_of(model_type))
    if rope is None or (rope.get("rope_type") or rope.get("type")) != "yarn":
        return None
    origin = _first(rope, "original_max_position_embeddings") or context
    reached = int(origin * rope["factor"])
    return reached if reached > context else None


def _context(config: Config, family: str) -> int:
    """The longest context."""
    return default_context(config, family) or _size(config, "context")


def _rope_scaling(config: Config) -> dict[str, Any] | None:
    """How rotary positions are scaled; transformers 5 writes it into ``rope_parameters``.

    Raises:
        ModelSourceError: a scaling that no version of TensorRT-LLM knows, or without its factor.
    """
    name = "rope_scaling" if config.get("rope_scaling") is not None else "rope_parameters"
    rope = config.get(name)
    if rope is None:
        return None
    remedy = "fetch the model's own config.json"
    if not isinstance(rope, Mapping):
        raise ModelSourceError(f"config.json: {name} is {rope!r}; an object is needed", remedy)
    if name == "rope_parameters" and any(isinstance(value, Mapping) for value in rope.values()):
        return None  # each kind of layer has its own
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    if kind not in _ROPE_TYPES:
        raise ModelSourceError(
            f"config.json: {name} is of the type {kind!r}, and TensorRT-LLM knows {', '.join(_ROPE_TYPES)}",
            remedy,
        )
    factor = rope.get("factor")
    fits = isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor < 1 << 20
    if _ROPE_TYPES[kind] and not fits:
        raise ModelSourceError(f"config.json: {name} of the type {kind!r} has the factor {factor!r}", remedy)
    return None if name == "rope_parameters" and kind == "default" else dict(rope)


def _qkv_bias(config: Config, family: str) -> bool:
    if family in _QWEN_BIASED:
        return True  # though config.json does not say so
    if family == "chatglm":
        return bool(config.get("add_qkv_bias"))
    return bool(config.get("attention_bias") or config.get("qkv_bias"))


def _window(config: Config, family: str, layers: int) -> tuple[int | None, int]:
    """The sliding window that is in effect, and the number of layers that have it."""
    window = config.get("sliding_window")
    context = _optional(config, "context") or default_context(config, family) or 0
    if not isinstance(window, int) or not 0 < window < context:
        return None, 0
    if config.get("use_sliding_window", family not in _WINDOW_IS_OPT_IN) is False:
        return None, 0
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return window, sum(kind == "sliding_attention" for kind in kinds)
    if family in ("gemma3", "gemma3_text"):
        return window, layers - layers // (_first(config, "sliding_window_pattern") or 6)
    if family in ("gemma2", "gpt_oss"):
        return window, -(-layers // 2)
    return window, layers


def _mla(config: Config, plain_head_dim: int) -> MlaShape | None:
    rank = _first(config, "kv_lora_rank")
    if rank is None:
        return None
    nope, rope = _first(config, "qk_nope_head_dim"), _first(config, "qk_rope_head_dim")
    if nope is None or rope is None:
        raise ModelSourceError(
            "config.json has kv_lora_rank (MLA) but no qk_nope_head_dim and qk_rope_head_dim",
            "fetch the model's own config.json",
        )
    return MlaShape(
        kv_rank=rank,
        q_rank=_first(config, "q_lora_rank"),
        nope=nope,
        rope=rope,
        v=_first(config, "v_head_dim") or plain_head_dim,
    )


def _moe(config: Config, family: str, layers: int) -> MoeShape | None:
    experts = _first(config, "num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
    if experts is None:
        _refuse_unknown_experts(config)
    if experts is None and family in _ALWAYS_EXPERTS:
        raise ModelSourceError(
            f"config.json is of a model with experts ({family}), and does not say how many",
            "fetch the model's own config.json",
        )
    if experts is None or experts == 1:
        return None
    ffn = _first(config, "moe_intermediate_size", "intermediate_size")
    active = _first(
        config,
        "num_experts_per_tok",
        "experts_per_token",
        "num_experts_per_token",
        "moe_topk",
        "moe_k",
        "top_k_experts",
    )
    if ffn is None or active is None:
        raise ModelSourceError(
            f"config.json names {experts} experts but not their width and how many are active",
            "fetch the model's own config.json",
        )
    shared_ffn = _first(config, "shared_expert_intermediate_size")
    return MoeShape(
        experts=experts,
        active=active,
        ffn=ffn,
        shared=1 if family == "llama4_text" else _first(config, *_SHARED_EXPERTS) or 0,
        shared_ffn=shared_ffn,
        shared_gate=shared_ffn is not None,
        dense_layers=_dense_layers(config, layers),
        router_bias=family == "gpt_oss",
        correction_bias=config.get("topk_method") == "noaux_tc" or config.get("scoring_func") == "sigmoid",
        expert_bias=family == "gpt_oss",
    )


def _refuse_unknown_experts(config: Config) -> None:
    """Raises where a number of experts has an unknown name: the model would be planned without them."""
    for name in filter(_EXPERTS.search, config):
        if (_first(config, name) or 0) > 1:
            raise ModelSourceError(
                f"config.json is of a model with experts ({name}), and how it names them is not known",
                "choose a model of another family; `trtbuild models` lists some",
            )


def _dense_layers(config: Config, layers: int) -> int:
    """Layers with a plain MLP: the leading ones, named ones, or all but each n-th."""
    kinds = config.get("is_moe_layer")
    if isinstance(kinds, list):
        return sum(not kind for kind in kinds)
    dense = _first(config, "first_k_dense_replace", "moe_layer_start_index") or 0
    only = config.get("mlp_only_layers")
    if isinstance(only, list):
        dense += len(only)
    step = _first(config, "decoder_sparse_step", "interleave_moe_layer_step") or 1
    return dense + (layers - dense) - (layers - dense) // step
