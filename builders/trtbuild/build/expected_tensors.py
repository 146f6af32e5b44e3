"""The tensors that a model's config.json promises against those that its safetensors headers hold.

Only for families whose layers are all alike and whose names are Hugging Face's plain ones, and only where
most of those names are there: fused, renamed and partial checkpoints are left to the tool that reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trtbuild.build.tensors import TensorInfo
from trtbuild.errors import ModelSourceError
from trtbuild.plan.architecture import Architecture

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2")
# Where a layer's first projection is; in front of it is the text tower's prefix, whichever that is.
_FIRST = "layers.0.self_attn.q_proj."
# Suffixes under which quantisers store a linear layer; its shape is (out, in) under "weight" of these types.
_STORED = ("weight", "qweight", "weight_packed")
_PLAIN_TYPES = ("BF16", "F16", "F32", "F8_E4M3")
_KNOWN_SHARE = 0.9  # of the promised tensors; below it the names are not understood
_SHOWN = 3


def check_tensors(
    folder: Path, config: Mapping[str, Any], architecture: Architecture, tensors: Mapping[str, TensorInfo]
) -> None:
    """Raises where a tensor is missing or has another shape than the config says.

    Raises:
        ModelSourceError: names the tensors.
    """
    if architecture.model_type not in FAMILIES or architecture.moe is not None:
        return
    prefix = next((name[: name.index(_FIRST)] for name in tensors if _FIRST in name), None)
    if prefix is None:
        return
    promised = dict(_promised(architecture, prefix, config))
    missing, wrong = [], []
    for module, shape in promised.items():
        stored = next((name for name in _STORED if f"{module}.{name}" in tensors), None)
        if stored is None:
            missing.append(f"{module}.weight")
            continue
        info = tensors[f"{module}.{stored}"]
        if stored == "weight" and info.dtype in _PLAIN_TYPES and info.shape != shape:
            wrong.append(f"{module}.weight is {_by(info.shape)} instead of {_by(shape)}")
    if len(missing) > (1 - _KNOWN_SHARE) * len(promised):
        return
    if missing or wrong:
        found = [f"{name} is missing" for name in missing] + wrong
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise ModelSourceError(
            f"{folder}: by its config.json, {'; '.join(found[:_SHOWN])}{more}",
            "fetch weights and config.json of one revision",
        )


def _promised(
    architecture: Architecture, prefix: str, config: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Modules and the shapes of their weights."""
    hidden, ffn, vocab = architecture.hidden, architecture.ffn, architecture.vocab
    queries, keys = architecture.heads * architecture.head_dim, architecture.kv_heads * architecture.head_dim
    layer = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    yield f"{prefix}embed_tokens", (vocab, hidden)
    for index in range(architecture.layers):
        for name, shape in layer.items():
            yield f"{prefix}layers.{index}.{name}", shape
    yield f"{prefix}norm", (hidden,)
    # Left out of the files where it is the embedding, which a config need not say.
    if prefix == "model." and config.get("tie_word_embeddings") is False:
        yield "lm_head", (vocab, hidden)


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
