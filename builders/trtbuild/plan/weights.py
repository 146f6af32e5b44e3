"""Bytes of a model's weights on one GPU, by format, with what stays 16 bit counted."""

from __future__ import annotations

from dataclasses import dataclass

from trtbuild.catalog.formats import Format
from trtbuild.plan.architecture import Architecture, Linear

_SIXTEEN_BIT_BYTES = 2
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Weights:
    """One instance's text tower on one GPU, in bytes, by what it is."""

    quantised_bytes: int  # packed weights of the quantised linear layers
    scale_bytes: int  # their scales and zero points
    linear_bytes: int  # linear layers that stay 16 bit (routers; all of them in a 16-bit format)
    embedding_bytes: int
    lm_head_bytes: int  # 0 where it is the embedding
    other_bytes: int  # norms and biases

    @property
    def total_bytes(self) -> int:
        return (
            self.quantised_bytes
            + self.scale_bytes
            + self.linear_bytes
            + self.embedding_bytes
            + self.lm_head_bytes
            + self.other_bytes
        )


def is_quantised(linear: Linear, fmt: Format, *, mla: bool) -> bool:
    """Whether a format stores this linear layer in its own type. Routers and lm_head always stay 16 bit; so
    does MLA attention, except in checkpoints published in FP8 blocks (mem-0034: INT4 DeepSeek-V3)."""
    if fmt.layers == "experts":
        return linear.part == "expert"
    if mla and linear.part == "attention" and fmt.block is None:
        return False
    return fmt.layers in ("blocks", "file") and linear.part not in ("router", "lm_head")


def weights(
    *,
    architecture: Architecture,
    fmt: Format,
    tp: int = 1,
    group_size: int | None = None,
    embedding_split: bool = False,
) -> Weights:
    """Bytes on one of ``tp`` GPUs.

    Args:
        architecture: the model.
        fmt: the weight format.
        tp: tensor parallelism; KV heads are copied where there are fewer than ranks.
        group_size: weights that share a scale; None: the format's default.
        embedding_split: whether the ranks share the token table (PyTorch flow); the compiled engine holds
            all of it on each (TensorRT-LLM's use_parallel_embedding is off by default; record mem-0042).
    """
    group_size = group_size or fmt.group_size
    quantised_bits = scales = sixteen_bit = lm_head = biases = 0
    for linear in architecture.linears():
        in_features, out_features = linear.on_rank(tp)
        elements = in_features * out_features * linear.count
        if linear.bias:
            biases += out_features * linear.count
        if linear.part == "lm_head":
            lm_head = 0 if architecture.tied else elements
        elif is_quantised(linear, fmt, mla=architecture.mla is not None):
            quantised_bits += elements * fmt.bits
            scales += linear.count * _scale_bits(in_features, out_features, fmt, group_size)
        else:
            sixteen_bit += elements
    embedding = architecture.embedding_params
    if embedding_split:
        embedding = -(-embedding // tp)
    return Weights(
        quantised_bytes=-(-quantised_bits // 8),
        scale_bytes=-(-scales // 8),
        linear_bytes=sixteen_bit * _SIXTEEN_BIT_BYTES,
        embedding_bytes=embedding * _SIXTEEN_BIT_BYTES,
        lm_head_bytes=lm_head * _SIXTEEN_BIT_BYTES,
        other_bytes=(architecture.small_params + biases) * _SIXTEEN_BIT_BYTES,
    )


def _scale_bits(in_features: int, out_features: int, fmt: Format, group_size: int | None) -> int:
    """Scales and zero points of one matrix, in bits."""
    if fmt.block is not None:
        blocks = -(-in_features // fmt.block) * -(-out_features // fmt.block)
    elif group_size is not None:
        blocks = -(-in_features // group_size) * out_features
    elif fmt.scale_bits:
        blocks = out_features
    else:
        return 2 * 8 * _FLOAT_BYTES  # one scale of the weights, one of the activations
    return blocks * (fmt.scale_bits + fmt.zero_bits)


def engine_copy_bytes(*, architecture: Architecture, tp: int = 1) -> int:
    """What a compiled engine holds beside the weights: a tied table once more as lm_head, and a rope table.

    A tied lm_head is a tensor of its own in the engine: Falcon-7B's is 13,768 MiB (mem-0043) where the
    weights are 13,202 MiB. Rope: one float32 table of context x rotary size, exact in three logs
    (TensorRT-LLM issues 1188 and 3636, tensorrtllm_backend issue 625: 869, 15,380 and 10,184 MiB).
    """
    head = -(-architecture.vocab // tp) * architecture.hidden * _SIXTEEN_BIT_BYTES if architecture.tied else 0
    return head + architecture.context * architecture.rotary_dim * _FLOAT_BYTES
