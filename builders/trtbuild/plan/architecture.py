"""What a model is made of: one frozen `Architecture`, whatever described it.

`from_record` takes a catalogue row, `from_hf_config` a Hugging Face config.json, `from_gguf` the metadata
of a GGUF file. All arithmetic of the plan and all rules on shapes read this object and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trtbuild.catalog.models import MlaShape, ModelRecord, ModelShape, MoeShape
from trtbuild.errors import ModelSourceError

Part = Literal["attention", "mlp", "expert", "shared_expert", "router", "lm_head"]
Split = Literal["out", "in", "none"]


@dataclass(frozen=True)
class Linear:
    """One kind of linear layer: ``count`` matrices of ``out_features`` × ``in_features`` in the whole model.

    ``split`` says what tensor parallelism divides: the outputs, the inputs, or nothing (each rank has all).
    ``copied_out_features`` of the outputs are KV heads: a rank never has less than ``kv_head_features`` of
    each of key and value.
    """

    name: str
    part: Part
    in_features: int
    out_features: int
    count: int
    split: Split
    bias: bool = False
    kv_features: int = 0  # of out_features: key (or value) width, counted once
    head_features: int = 0  # width of one KV head

    @property
    def weights(self) -> int:
        """Weights of all matrices of this kind, without biases."""
        return self.in_features * self.out_features * self.count

    def on_rank(self, tp: int) -> tuple[int, int]:
        """(in, out) of one matrix on one of ``tp`` ranks; odd sizes are rounded up, KV heads are copied."""
        if self.split == "none":
            return self.in_features, self.out_features
        if self.split == "in":
            return -(-self.in_features // tp), self.out_features
        if self.kv_features:
            queries = self.out_features - 2 * self.kv_features
            kv = max(self.head_features, -(-self.kv_features // tp))
            return self.in_features, -(-queries // tp) + 2 * kv
        return self.in_features, -(-self.out_features // tp)


@dataclass(frozen=True)
class Architecture:
    """A decoder-only language model. Sizes are elements, per layer where the name does not say otherwise."""

    model_type: str
    dtype: str  # of the checkpoint: float16, bfloat16 or float32
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    context: int
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    sinks: bool = False
    window: int | None = None
    windowed_layers: int = 0
    gated_mlp: bool = True
    mlp_bias: bool = False
    lm_head_bias: bool = False
    rotary_dim: int = 0  # of a head, turned by position; 0: no rope
    norms_per_layer: int = 2  # of hidden width
    norm_bias: bool = False
    moe: MoeShape | None = None
    mla: MlaShape | None = None
    learned_positions: int = 0  # rows of a learned position table
    native_quant: str | None = None  # format in which the checkpoint is published
    vision_params: int = 0  # vision tower and projector, which text-only engines leave out
    assumption: str = ""  # what was assumed of a family that is not known by name
    hf_class: str = "unknown"  # first of config.json's architectures

    def linears(self) -> Iterator[Linear]:
        """Every kind of linear layer, attention first; lm_head last, also where it is tied."""
        yield from self._mla_linears(self.mla) if self.mla else self._attention_linears()
        dense_layers = self.layers if self.moe is None else self.moe.dense_layers
        if dense_layers:
            yield from self._mlp("mlp", "mlp", self.ffn, dense_layers, self.mlp_bias)
        if self.moe is not None:
            yield from self._moe_linears(self.moe, self.layers - dense_layers)
        yield Linear("lm_head", "lm_head", self.hidden, self.vocab, 1, "out", self.lm_head_bias)

    def _attention_linears(self) -> Iterator[Linear]:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield Linear(
            "attention.qkv",
            "attention",
            self.hidden,
            queries + 2 * keys,
            self.layers,
            "out",
            self.qkv_bias,
            kv_features=keys,
            head_features=self.head_dim,
        )
        yield Linear("attention.dense", "attention", queries, self.hidden, self.layers, "in", self.o_bias)

    def _mla_linears(self, mla: MlaShape) -> Iterator[Linear]:
        def linear(name: str, in_features: int, out_features: int, split: Split) -> Linear:
            return Linear(f"attention.{name}", "attention", in_features, out_features, self.layers, split)

        query = self.heads * (mla.nope + mla.rope)
        if mla.q_rank:
            yield linear("q_a", self.hidden, mla.q_rank, "none")
            yield linear("q_b", mla.q_rank, query, "out")
        else:
            yield linear("q", self.hidden, query, "out")
        yield linear("kv_a", self.hidden, mla.kv_rank + mla.rope, "none")
        yield linear("kv_b", mla.kv_rank, self.heads * (mla.nope + mla.v), "out")
        yield linear("dense", self.heads * mla.v, self.hidden, "in")

    def _mlp(self, name: str, part: Part, ffn: int, count: int, bias: bool) -> Iterator[Linear]:
        if self.gated_mlp:
            yield Linear(f"{name}.gate", part, self.hidden, ffn, count, "out", bias)
        yield Linear(f"{name}.fc", part, self.hidden, ffn, count, "out", bias)
        yield Linear(f"{name}.proj", part, ffn, self.hidden, count, "in", bias)

    def _moe_linears(self, moe: MoeShape, layers: int) -> Iterator[Linear]:
        yield Linear("router", "router", self.hidden, moe.experts, layers, "none", moe.router_bias)
        yield from self._mlp("expert", "expert", moe.ffn, layers * moe.experts, moe.expert_bias)
        shared_ffn = moe.shared_ffn or moe.shared * moe.ffn
        if shared_ffn:
            yield from self._mlp("shared_expert", "shared_expert", shared_ffn, layers, False)
        if moe.shared_gate:
            yield Linear("shared_gate", "router", self.hidden, 1, layers, "none")

    @property
    def embedding_params(self) -> int:
        """The token table (and learned positions): one row a token."""
        return (self.vocab + self.learned_positions) * self.hidden

    @property
    def small_params(self) -> int:
        """Norms, sinks and correction biases: what is neither a linear layer nor a table."""
        norm_width = self.hidden * (2 if self.norm_bias else 1)
        per_layer = self.norms_per_layer * norm_width
        if self.qk_norm:
            per_layer += 2 * self.head_dim
        if self.sinks:
            per_layer += self.heads
        if self.mla is not None:
            per_layer += self.mla.kv_rank + (self.mla.q_rank or 0)
        total = self.layers * per_layer + norm_width
        if self.moe is not None and self.moe.correction_bias:
            total += self.moe.experts * (self.layers - self.moe.dense_layers)
        return total

    @property
    def params(self) -> int:
        """All parameters of the text tower, a tied table counted once."""
        linears = sum(
            linear.weights + (linear.out_features * linear.count if linear.bias else 0)
            for linear in self.linears()
            if not (linear.part == "lm_head" and self.tied)
        )
        return self.embedding_params + linears + self.small_params


# Norms of hidden width in a layer, and whether they have a bias, by model_type; others have two without.
_NORMS = {
    "gemma2": (4, False), "gemma3": (4, False), "gemma3_text": (4, False), "gptj": (1, True),
    "falcon": (2, True),
}  # fmt: skip


# Far above every published model: what is larger is a damaged or a forged file.
_MOST = {
    "layers": 1 << 12, "hidden": 1 << 18, "ffn": 1 << 22, "heads": 1 << 12, "kv_heads": 1 << 12,
    "head_dim": 1 << 14, "vocab": 1 << 24, "context": 1 << 30,
}  # fmt: skip
_MOST_PARAMS = 10**14


def from_record(record: ModelRecord) -> Architecture:
    """The architecture of a catalogue row."""
    return replace(from_shape(record.shape), vision_params=record.params.vision)


def from_shape(shape: ModelShape) -> Architecture:
    """The architecture of a described shape.

    Raises:
        ModelSourceError: sizes beyond those of any model.
    """
    norms, norm_bias = _NORMS.get(shape.type, (2, False))
    if shape.type == "falcon" and shape.kv_heads == 1:
        norms = 1  # Falcon-7B: attention and MLP read the same norm
    for field, most in _MOST.items():
        if getattr(shape, field) > most:
            raise ModelSourceError(
                f"{field} is said to be {getattr(shape, field):,}; no model has more than {most:,}",
                "fetch the model's own files",
            )
    found = Architecture(
        model_type=shape.type,
        dtype=shape.dtype,
        layers=shape.layers,
        hidden=shape.hidden,
        ffn=shape.ffn,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab=shape.vocab,
        tied=shape.tied,
        context=shape.context,
        qkv_bias=shape.qkv_bias,
        o_bias=shape.o_bias,
        qk_norm=shape.qk_norm,
        sinks=shape.sinks,
        window=shape.window,
        windowed_layers=shape.windowed_layers,
        gated_mlp=shape.gated_mlp,
        mlp_bias=shape.mlp_bias,
        lm_head_bias=shape.lm_head_bias,
        rotary_dim=_rotary_dim(shape),
        norms_per_layer=norms,
        norm_bias=norm_bias,
        moe=shape.moe,
        mla=shape.mla,
        native_quant=shape.native_quant,
        hf_class=shape.class_,
    )
    if found.params > _MOST_PARAMS:
        raise ModelSourceError(
            f"its sizes make {found.params:.1e} parameters; no model has more than {_MOST_PARAMS:.0e}",
            "fetch the model's own files",
        )
    return found


def _rotary_dim(shape: ModelShape) -> int:
    if shape.position != "rope":
        return 0
    if shape.mla is not None:
        return shape.mla.rope
    if shape.type == "chatglm":
        return shape.head_dim // 2
    return shape.rotary_dim or shape.head_dim


def from_hf_config(source: Path | Mapping[str, Any]) -> Architecture:
    """The architecture in a folder's config.json, or in its parsed content.

    Raises:
        ModelSourceError: no config.json, not JSON, an encoder-decoder, or fields that cannot be understood.
    """
    from trtbuild.plan.hf_config import parse_hf_config, read_hf_config

    config = read_hf_config(source) if isinstance(source, Path) else source
    return parse_hf_config(config)


def from_gguf(metadata: Mapping[str, Any]) -> Architecture:
    """The architecture in a GGUF file's metadata (key → value).

    Raises:
        ModelSourceError: a key that is missing, or an architecture that is no decoder-only language model.
    """
    from trtbuild.plan.gguf_metadata import parse_gguf_metadata

    return parse_gguf_metadata(metadata)
