"""Execution context, runtime and decoder buffers of a compiled engine on one GPU, as TensorRT-LLM allocates."""

from __future__ import annotations

from trtbuild.plan.architecture import Architecture

_HALF_BYTES = 2
_FLOAT_BYTES = 4
_INDEX_BYTES = 4


def execution_context_bytes(
    *, architecture: Architecture, tp: int, max_num_tokens: int, max_batch_size: int
) -> int:
    """Activations of the largest step: the MLP's gate and up halves with input and residual for every
    token, and 16-bit logits for every sequence."""
    moe = architecture.moe
    ffn = -(-max(architecture.ffn, (moe.active * moe.ffn) if moe else 0) // tp)
    per_token = 2 * ffn + 2 * architecture.hidden
    logits = max_batch_size * -(-architecture.vocab // tp)
    return _HALF_BYTES * (max_num_tokens * per_token + logits)


def runtime_buffers_bytes(*, architecture: Architecture, max_batch_size: int, max_seq_len: int) -> int:
    """Inputs and outputs: float32 logits of the context and the generation phase, cache indirection."""
    per_sequence = 2 * _FLOAT_BYTES * architecture.vocab + _INDEX_BYTES * max_seq_len
    return max_batch_size * per_sequence


def decoder_buffers_bytes(*, architecture: Architecture, max_batch_size: int, max_seq_len: int) -> int:
    """The sampler: five float32 or int32 tables over the vocabulary, and per-position records."""
    per_sequence = 5 * _FLOAT_BYTES * architecture.vocab + 48 * max_seq_len
    return max_batch_size * per_sequence
