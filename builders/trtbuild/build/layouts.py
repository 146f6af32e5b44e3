"""Which tensors of an exported checkpoint hold which part of which layer of the source.

TensorRT-LLM's names and splits: tensorrt_llm/models/modeling_utils.py; qkv holds query, key and value rows of
a rank one after the other, fc is the gate projection and gate the up projection of Hugging Face.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtbuild.build.tensors import TensorInfo, read_header, read_headers
from trtbuild.build.weights import read_config
from trtbuild.errors import BuildError

Span = tuple[int, int]  # the first, and the one after the last
_WEIGHT = re.compile(
    r"transformer\.layers\.(\d+)\.(attention\.qkv|attention\.dense|mlp\.fc|mlp\.gate|mlp\.proj)"
)


@dataclass(frozen=True)
class SourcePart:
    """Rows and columns of one matrix ``<name>.weight`` [out, in] of the source; None: all."""

    name: str
    rows: Span | None = None
    columns: Span | None = None

    def span(self, info: TensorInfo) -> Span:
        """The rows that it takes of its matrix."""
        return self.rows or (0, info.shape[0])


@dataclass(frozen=True)
class Layer:
    """One quantised matrix: the source's parts, stacked along the outputs, and the tensors that hold it.

    ``tensors`` has ``weight``, ``scale`` and, where the inputs are scaled, ``prequant``, or ``norm`` and
    ``source_norm`` where that factor was multiplied into the norm before the layer. ``packed``: two 4-bit
    weights a byte.
    """

    name: str
    sources: tuple[SourcePart, ...]
    tensors: Mapping[str, TensorInfo]
    packed: bool


def layers_of(source: Path, checkpoint: Path) -> Iterator[Layer]:
    """Every quantised matrix of a checkpoint, rank by rank.

    Raises:
        BuildError: a layer without a scale.
    """
    ranks = sorted(checkpoint.glob("rank*.safetensors"), key=lambda path: int(path.stem[4:]))
    if ranks:
        config = read_config(source)
        for rank, path in enumerate(ranks):
            yield from _trtllm_layers(config, read_header(path), rank, len(ranks))
    else:
        yield from _hf_layers(read_headers(source), read_headers(checkpoint))


def _trtllm_layers(
    config: Mapping[str, Any], tensors: Mapping[str, TensorInfo], rank: int, tp: int
) -> Iterator[Layer]:
    for name, info in tensors.items():
        base = name.removesuffix(".weight")
        match = _WEIGHT.fullmatch(base)
        if match is None or info.dtype not in ("I8", "F8_E4M3"):
            continue
        found = {"weight": info, "scale": _need(tensors, f"{base}.weights_scaling_factor")}
        prequant = tensors.get(f"{base}.prequant_scaling_factor")
        if prequant is not None:
            found["prequant"] = prequant
        parts = _parts(config, f"model.layers.{match[1]}", match[2], rank, tp)
        packed = info.dtype == "I8" and len(found["scale"].shape) == 2
        yield Layer(f"rank{rank}.{base}", parts, found, packed)


def _parts(config: Mapping[str, Any], prefix: str, kind: str, rank: int, tp: int) -> tuple[SourcePart, ...]:
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    ffn = int(config["intermediate_size"])
    if kind == "attention.qkv":
        # KV heads that are fewer than the ranks are copied: rank r holds head r * kv_heads // tp.
        kv_first, kv_count = rank * kv_heads // tp, max(1, kv_heads // tp)
        queries = _share(heads * head_dim, rank, tp)
        keys = (kv_first * head_dim, (kv_first + kv_count) * head_dim)
        rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        return tuple(SourcePart(f"{prefix}.self_attn.{part}", rows=span) for part, span in rows.items())
    if kind == "attention.dense":
        return (SourcePart(f"{prefix}.self_attn.o_proj", columns=_share(heads * head_dim, rank, tp)),)
    if kind == "mlp.proj":
        return (SourcePart(f"{prefix}.mlp.down_proj", columns=_share(ffn, rank, tp)),)
    part = "gate_proj" if kind == "mlp.fc" else "up_proj"
    return (SourcePart(f"{prefix}.mlp.{part}", rows=_share(ffn, rank, tp)),)


def _share(width: int, rank: int, tp: int) -> tuple[int, int]:
    return rank * width // tp, (rank + 1) * width // tp


def _hf_layers(source: Mapping[str, TensorInfo], tensors: Mapping[str, TensorInfo]) -> Iterator[Layer]:
    for name, info in tensors.items():
        base = name.removesuffix(".weight")
        if base == name or info.dtype not in ("U8", "I8", "F8_E4M3"):
            continue
        if name not in source:
            raise BuildError(f"{name} is in the checkpoint and not in its source")
        found = {"weight": info, "scale": _need(tensors, f"{base}.weight_scale")}
        prequant = tensors.get(f"{base}.pre_quant_scale")
        norm = _norm_before(base)
        if prequant is not None:
            found["prequant"] = prequant
        elif norm in tensors and norm in source:
            found.update(norm=tensors[norm], source_norm=source[norm])
        yield Layer(base, (SourcePart(base),), found, packed=info.dtype == "U8")


def _norm_before(name: str) -> str:
    """The norm that a projection reads from; modelopt multiplies AWQ's input factors into it."""
    layer, _, projection = name.rpartition(".")
    block = layer.rpartition(".")[0]
    if projection in ("q_proj", "k_proj", "v_proj"):
        return f"{block}.input_layernorm.weight"
    return f"{block}.post_attention_layernorm.weight" if projection in ("gate_proj", "up_proj") else ""


def _need(tensors: Mapping[str, TensorInfo], name: str) -> TensorInfo:
    if name not in tensors:
        raise BuildError(f"{name} is missing in the exported checkpoint")
    return tensors[name]
