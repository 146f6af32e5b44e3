"""Operations and bytes of a model's steps on one GPU of a tensor-parallel group."""

from __future__ import annotations

from dataclasses import dataclass

from trtbuild.catalog.formats import Format
from trtbuild.plan.architecture import Architecture
from trtbuild.plan.kv import kv_bytes_per_token
from trtbuild.plan.weights import is_quantised

_SIXTEEN_BIT_BYTES = 2


@dataclass(frozen=True)
class ModelWork:
    """What one rank does. Operations count a multiply-add as two; "token" is a token of the step's batch.

    ``experts`` of each of the MoE layers are read as far as the step's tokens choose them; ``expert_*`` are
    those of all experts of all layers together, ``expert_share`` is the part that one token runs.
    """

    layers: int
    hidden: int
    tp: int
    dense_ops_per_token: float
    dense_bytes: float  # weights that every step reads
    head_ops_per_row: float  # lm_head, for each sequence whose next token is sampled
    head_bytes: float
    vocab: int
    kv_bytes_per_token: float  # keys and values of the layers without a window
    window_kv_bytes_per_token: float  # of the layers with one
    attention_ops_per_pair: float  # a query token over one key token, layers without a window
    window_attention_ops_per_pair: float
    window: int | None = None
    expert_ops_per_token: float = 0.0
    expert_bytes: float = 0.0
    expert_share: float = 1.0

    @property
    def reduced_bytes_per_token(self) -> int:
        """What one all-reduce carries for each token: a hidden state in 16 bit."""
        return self.hidden * _SIXTEEN_BIT_BYTES


def model_work(*, architecture: Architecture, fmt: Format, kv_bits: int, tp: int = 1) -> ModelWork:
    """The work of ``architecture`` with weights in ``fmt`` and a KV cache of ``kv_bits``, on one of ``tp``.

    MLA: keys and values are expanded for the prompt and absorbed for decoding; both are counted with the
    latent width, as the engine caches it.
    """
    dense_ops = dense_bytes = expert_ops = expert_bytes = head_ops = head_bytes = 0.0
    moe, mla = architecture.moe, architecture.mla
    share = moe.active / moe.experts if moe else 1.0
    for linear in architecture.linears():
        in_features, out_features = linear.on_rank(tp)
        elements = in_features * out_features * linear.count
        bits = fmt.bits if is_quantised(linear, fmt, mla=mla is not None) else 16
        size = elements * (bits + _scale_bits_per_weight(fmt, bits)) / 8
        if linear.part == "lm_head":
            head_ops, head_bytes = 2.0 * elements, elements * _SIXTEEN_BIT_BYTES
        elif linear.part == "expert":
            expert_ops += 2.0 * elements * share
            expert_bytes += size
        else:
            dense_ops += 2.0 * elements
            dense_bytes += size
    windowed = architecture.windowed_layers / architecture.layers if architecture.window else 0.0
    kv = float(kv_bytes_per_token(architecture=architecture, bits=kv_bits, tp=tp))
    # scores and weighted sum: two multiply-adds of a head's width for each pair
    width = architecture.head_dim * 2 if mla is None else mla.nope + mla.rope + mla.v
    pair_ops = 2.0 * width * -(-architecture.heads // tp) * architecture.layers
    return ModelWork(
        layers=architecture.layers,
        hidden=architecture.hidden,
        tp=tp,
        dense_ops_per_token=dense_ops,
        dense_bytes=dense_bytes,
        head_ops_per_row=head_ops,
        head_bytes=head_bytes,
        vocab=architecture.vocab,
        kv_bytes_per_token=kv * (1 - windowed),
        window_kv_bytes_per_token=kv * windowed,
        attention_ops_per_pair=pair_ops * (1 - windowed),
        window_attention_ops_per_pair=pair_ops * windowed,
        window=architecture.window if windowed else None,
        expert_ops_per_token=expert_ops,
        expert_bytes=expert_bytes,
        expert_share=share,
    )


def _scale_bits_per_weight(fmt: Format, bits: int) -> float:
    if bits == 16 or not fmt.group_size:
        return 0.0
    return (fmt.scale_bits + fmt.zero_bits) / fmt.group_size
