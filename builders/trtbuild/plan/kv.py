"""The KV cache: bytes a token, blocks, sequences. Pure functions; sizes are of one GPU."""

from __future__ import annotations

from trtbuild.plan.architecture import Architecture

# OpenVINO's CPU cache: blocks of 32 tokens, unsigned 8-bit values with a float32 scale and zero point
# (2 x 4 bytes) per channel of a block for keys and per token for values.
LOCAL_TOKENS_PER_BLOCK = 32
_LOCAL_SCALE_AND_ZERO_BYTES = 8


def kv_bytes_per_token(*, architecture: Architecture, bits: int, tp: int = 1) -> int:
    """Bytes of one token's keys and values over all layers, on one of ``tp`` GPUs.

    KV heads are divided among ranks and copied where there are fewer heads than ranks. MLA caches one
    latent vector that every rank holds. Windowed layers count in full: an engine that frees their old
    blocks needs less, and none of the targets is known to.
    """
    if architecture.mla is not None:
        per_layer = architecture.mla.kv_rank + architecture.mla.rope
    else:
        heads = -(-architecture.kv_heads // tp)
        per_layer = 2 * heads * architecture.head_dim  # key and value
    return architecture.layers * per_layer * bits // 8


def local_kv_bytes_per_token(*, architecture: Architecture) -> int:
    """Bytes a token in OpenVINO's 8-bit CPU cache, by whole blocks.

    SmolLM2-135M: 30 layers x 3 heads x (64 x 40 + 32 x 72) / 32 = 13,680, as measured.
    """
    size, tokens = architecture.head_dim, LOCAL_TOKENS_PER_BLOCK
    keys = size * (tokens + _LOCAL_SCALE_AND_ZERO_BYTES)
    values = tokens * (size + _LOCAL_SCALE_AND_ZERO_BYTES)
    block = architecture.layers * architecture.kv_heads * (keys + values)
    return -(-block // tokens)


def whole_blocks(*, tokens: int, tokens_per_block: int) -> int:
    """``tokens`` rounded up to whole blocks: what one sequence takes."""
    return -(-tokens // tokens_per_block) * tokens_per_block


def pool_tokens(*, pool_bytes: int, bytes_per_token: int, tokens_per_block: int) -> int:
    """Tokens of the whole blocks that fit in ``pool_bytes``."""
    return max(0, pool_bytes) // (bytes_per_token * tokens_per_block) * tokens_per_block


def sequences(*, pool_tokens: int, max_seq_len: int, tokens_per_block: int) -> int:
    """Sequences of the full length that a pool carries at once."""
    return pool_tokens // whole_blocks(tokens=max_seq_len, tokens_per_block=tokens_per_block)


def free_fraction(*, kv_bytes: int, reserve_bytes: int) -> float:
    """``kv_cache_free_gpu_mem_fraction`` for a pool that a token cap bounds: the cap must bind always.

    TensorRT-LLM takes the smaller of the cap and fraction × what is free when the model's weights and
    buffers are loaded. Free is least when all others are loaded: then it is this pool and the reserve.
    Half of the reserve is left for what the plan did not foresee. Depends on nothing of other models.

    Raises:
        ValueError: the reserve is too small for any fraction below 1 (four decimals are written).
    """
    ten_thousandths = -(-kv_bytes * 10_000 // (kv_bytes + reserve_bytes // 2))
    if ten_thousandths >= 10_000:
        raise ValueError(
            f"a reserve of {reserve_bytes} bytes beside a pool of {kv_bytes} leaves no fraction below 1 "
            "with which the token cap binds"
        )
    return ten_thousandths / 10_000
