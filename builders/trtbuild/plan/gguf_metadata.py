"""GGUF metadata → `Architecture` (llama.cpp's key names, ``docs/gguf.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtbuild.catalog.models import MlaShape, ModelShape, MoeShape
from trtbuild.errors import ModelSourceError
from trtbuild.plan.architecture import Architecture, from_shape

Metadata = Mapping[str, Any]

# GGUF's architecture names that differ from Hugging Face's model_type.
_MODEL_TYPES = {"phi3": "phi3", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "gpt-oss": "gpt_oss"}
_NOT_DECODERS = (
    "bert",
    "nomic-bert",
    "jina-bert-v2",
    "t5",
    "t5encoder",
    "clip",
    "mamba",
    "rwkv6",
    "wavtokenizer-dec",
)
# Families whose GGUF holds no output table of its own.
_TIED = ("gemma", "gemma2", "gemma3")


def parse_gguf_metadata(metadata: Metadata) -> Architecture:
    """The architecture that a GGUF file's metadata describes. Whether the table is tied is not in it, so that
    ``tied`` holds for the families that always are; the file's size is the weights' size in any case.

    Raises:
        ModelSourceError: no decoder-only language model, or a key that is missing or senseless.
    """
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or not name:
        raise ModelSourceError(
            "the GGUF metadata has no general.architecture", "fetch the file again; it is not a model"
        )
    if name in _NOT_DECODERS:
        raise ModelSourceError(
            f"the GGUF file holds a {name} model; only decoder-only language models are served",
            "choose a chat or completion model",
        )
    hidden, heads = (
        _need(metadata, f"{name}.embedding_length"),
        _need(metadata, f"{name}.attention.head_count"),
    )
    mla = _mla(metadata, name)
    head_dim = _get(metadata, f"{name}.attention.key_length") or hidden // heads
    moe = _moe(metadata, name)
    window = _get(metadata, f"{name}.attention.sliding_window")
    layers, context = _need(metadata, f"{name}.block_count"), _need(metadata, f"{name}.context_length")
    windowed = window is not None and window < context
    model_type = _MODEL_TYPES.get(name, name)
    shape = ModelShape.model_validate(
        {
            "type": model_type,
            "class": name,
            "layers": layers,
            "hidden": hidden,
            "ffn": _get(metadata, f"{name}.feed_forward_length") or (moe.ffn if moe else 0),
            "heads": heads,
            "kv_heads": _get(metadata, f"{name}.attention.head_count_kv") or heads,
            "head_dim": mla.nope + mla.rope if mla else head_dim,
            "vocab": _vocab(metadata, name),
            "tied": name in _TIED,
            "context": context,
            "dtype": "float16",
            "qkv_bias": name in ("qwen", "qwen2", "qwen2moe"),
            "qk_norm": name in ("qwen3", "qwen3moe", "gemma3"),
            "window": window if windowed else None,
            "windowed_layers": layers if windowed else 0,
            "moe": moe,
            "mla": mla,
        }
    )
    return from_shape(shape)


def _need(metadata: Metadata, key: str) -> int:
    value = _get(metadata, key)
    if value is None:
        raise ModelSourceError(
            f"the GGUF metadata has no {key}, so the model's size is not known", "fetch the file again"
        )
    return value


def _get(metadata: Metadata, key: str) -> int | None:
    """A positive whole number; of a list with one entry a layer, the largest (memory is planned for it)."""
    value = metadata.get(key)
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        value = max(value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 40:
        if value == 0:
            return None  # llama.cpp writes 0 for "has none"
        raise ModelSourceError(f"the GGUF metadata's {key} is {value!r}; a positive whole number is needed")
    return value


def _vocab(metadata: Metadata, name: str) -> int:
    found = _get(metadata, f"{name}.vocab_size")
    if found is not None:
        return found
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, int) and tokens > 0:
        return tokens  # a reader that keeps the length only
    if isinstance(tokens, list) and tokens:
        return len(tokens)
    raise ModelSourceError(f"the GGUF metadata has neither {name}.vocab_size nor tokenizer.ggml.tokens")


def _moe(metadata: Metadata, name: str) -> MoeShape | None:
    experts = _get(metadata, f"{name}.expert_count")
    if experts is None:
        return None
    return MoeShape(
        experts=experts,
        active=_need(metadata, f"{name}.expert_used_count"),
        ffn=_get(metadata, f"{name}.expert_feed_forward_length")
        or _need(metadata, f"{name}.feed_forward_length"),
        shared=_get(metadata, f"{name}.expert_shared_count") or 0,
        dense_layers=_get(metadata, f"{name}.leading_dense_block_count") or 0,
        correction_bias=name == "deepseek2" and _get(metadata, f"{name}.expert_gating_func") == 2,
    )


def _mla(metadata: Metadata, name: str) -> MlaShape | None:
    rank = _get(metadata, f"{name}.attention.kv_lora_rank")
    if rank is None:
        return None
    # Newer files give the latent sizes as key_length and the plain ones with _mla.
    key = _get(metadata, f"{name}.attention.key_length_mla") or _need(
        metadata, f"{name}.attention.key_length"
    )
    value = _get(metadata, f"{name}.attention.value_length_mla") or _need(
        metadata, f"{name}.attention.value_length"
    )
    rope = _need(metadata, f"{name}.rope.dimension_count")
    return MlaShape(
        kv_rank=rank,
        q_rank=_get(metadata, f"{name}.attention.q_lora_rank"),
        nope=key - rope,
        rope=rope,
        v=value,
    )
