"""Activations and buffers of one engine on one GPU, as its runtime allocates them before the KV pool.

Every coefficient was fitted on the log that is named first and tried on those named after it; the table of
errors over all published records is made by ``scripts/check-memory-records``. TL and TB are issues of
NVIDIA/TensorRT-LLM and triton-inference-server/tensorrtllm_backend.
"""

from __future__ import annotations

from dataclasses import dataclass

from trtbuild.catalog.formats import Format
from trtbuild.catalog.versions import version_key
from trtbuild.plan.architecture import Architecture

_HALF_BYTES = 2
_FLOAT_BYTES = 4
# TensorRT-LLM's cuBLAS workspace (common/cublasMMWrapper.h). It shares its place with the logits: TL#1188 has
# 43.26 MiB at 512 tokens and 1 sequence, 773.51 MiB at 8192 tokens and 2048 sequences; both exact.
_GEMM_WORKSPACE_BYTES = 32 << 20


@dataclass(frozen=True)
class _PerToken:
    """Bytes of a token in the execution context, for each element of the MLP's and of the model's width."""

    ffn_bytes: float
    hidden_bytes: float


# Weight-only integers, one scale a channel: gate and up halves, input and residual, 16 bit.
# mem-0017 (exact); then TL#1188's second build (exact).
_WEIGHT_ONLY = _PerToken(4, 4)
# 16 bit: TB#577 (exact).
_SIXTEEN_BIT = _PerToken(4, 7)
# Groups: the scaled copy of the MLP's inner activation besides. mem-0056.
_GROUPED = _PerToken(6, 2)
# 8-bit arithmetic: 16- and 8-bit copies side by side. mem-0002, with its version's defaults (8192 tokens, 256
# sequences).
_EIGHT_BIT = _PerToken(5, 21)


def _per_token(fmt: Format) -> _PerToken:
    if fmt.fp8_fmha or fmt.name in ("int8-sq", "fp8-block"):
        return _EIGHT_BIT
    if fmt.group_size is not None:
        return _GROUPED
    return _SIXTEEN_BIT if fmt.bits == 16 else _WEIGHT_ONLY


def execution_context_bytes(
    *, architecture: Architecture, fmt: Format, tp: int, max_num_tokens: int, max_batch_size: int
) -> int:
    """TensorRT's device memory: the largest step's activations, and its logits in 16 bit or a GEMM's
    workspace, whichever is larger. Experts: the plugin's buffers for the tokens sorted by expert."""
    per_token = _per_token(fmt)
    has_dense_mlp = architecture.moe is None or architecture.moe.dense_layers > 0
    ffn = -(-architecture.ffn // tp) if has_dense_mlp else 0
    token_bytes = per_token.ffn_bytes * ffn + per_token.hidden_bytes * architecture.hidden
    logits_bytes = _HALF_BYTES * max_batch_size * -(-architecture.vocab // tp)
    return (
        int(token_bytes * max_num_tokens)
        + max_num_tokens * _expert_bytes_per_token(architecture, tp)
        + max(logits_bytes, _GEMM_WORKSPACE_BYTES)
    )


def _expert_bytes_per_token(architecture: Architecture, tp: int) -> int:
    """mixtureOfExpertsPlugin: inputs and outputs sorted by expert, and both halves with their product, for
    each of a token's experts. Not fitted; mem-0035 is met within 3 % with default settings."""
    moe = architecture.moe
    if moe is None:
        return 0
    return _HALF_BYTES * moe.active * (2 * architecture.hidden + 3 * -(-moe.ffn // tp))


def runtime_buffers_bytes(
    *, architecture: Architecture, max_batch_size: int, max_seq_len: int, trtllm_version: str | None
) -> int:
    """Engine inputs and outputs: float32 logits, and tables over the positions of a sequence.

    mem-0018 (6 tables of 4 bytes, exact); then mem-0003 and TB#625 (within 1.5 %). From 0.18 on the
    tables are gone: TL#3636 has 0.9 bytes a position, and its logits elsewhere; they are kept in here.
    """
    position_bytes = 24 if _before(trtllm_version, "0.18") else 1
    return max_batch_size * (_FLOAT_BYTES * architecture.vocab + position_bytes * max_seq_len)


def decoder_buffers_bytes(
    *, architecture: Architecture, max_batch_size: int, max_seq_len: int, trtllm_version: str | None
) -> int:
    """The sampler's tables over the vocabulary and over positions.

    To 0.13: mem-0004 (five of 4 bytes, and 48 bytes a position); then TB#625 (exact). From 0.14 on: mem-0019
    (four, and 18 bytes a position; one log, so the split between the two is a guess).
    """
    tables, position_bytes = (5, 48) if _before(trtllm_version, "0.14") else (4, 18)
    return max_batch_size * (tables * _FLOAT_BYTES * architecture.vocab + position_bytes * max_seq_len)


def torch_activation_bytes(
    *, architecture: Architecture, tp: int, max_num_tokens: int, max_batch_size: int
) -> int:
    """Peak of the PyTorch flow: gate, up and product, four hidden states, and the sampler's logits in
    three float32 copies. Fitted on a vLLM log of the same kind of graph (mem-0078)."""
    moe = architecture.moe
    ffn = 0 if moe is not None and not moe.dense_layers else -(-architecture.ffn // tp)
    token_bytes = _HALF_BYTES * (3 * ffn + 4 * architecture.hidden) + _expert_bytes_per_token(
        architecture, tp
    )
    return token_bytes * max_num_tokens + 3 * _FLOAT_BYTES * architecture.vocab * max_batch_size


# Measured with SmolLM2-135M in openvino-genai 2026.4.1, 500 and 1500 prompt tokens in a step: 39 to 41 kB a
# token, and 2 MiB for each sequence that runs (the sampler's candidates).
_LOCAL_FLOATS_PER_WIDTH = 4.8
_LOCAL_SAMPLER_BYTES_PER_ENTRY = 43


def local_activation_bytes(*, architecture: Architecture, max_num_tokens: int) -> int:
    """Activations of the CPU engine's largest step, in float32."""
    floats = _LOCAL_FLOATS_PER_WIDTH * (architecture.ffn + architecture.hidden)
    return int(_FLOAT_BYTES * floats * max_num_tokens)


def local_buffer_bytes(*, architecture: Architecture, max_batch_size: int) -> int:
    """The CPU engine's sampler."""
    return _LOCAL_SAMPLER_BYTES_PER_ENTRY * architecture.vocab * max_batch_size


def _before(version: str | None, limit: str) -> bool:
    return version is not None and version_key(version) < version_key(limit)
