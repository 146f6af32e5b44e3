"""Memory as TensorRT-LLM's own logs tell it: lines of public logs, from 0.8 to 1.2."""

from __future__ import annotations

import pytest

from trtbuild.build.engine_log import EngineLog, parse_log

MIB, GIB = 1 << 20, 1 << 30

# NVIDIA/TensorRT-LLM docs/source/reference/memory.md, 0.12 and 0.13, Llama-2-7B in FP8 on an H100.
DOCS = """
[TensorRT-LLM][INFO] Loaded engine size: 6695 MiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1134.01 MiB for execution context memory.
[TensorRT-LLM][INFO] [MS] Running engine with multi stream info
[TensorRT-LLM][INFO] [MemUsageChange] TensorRT-managed allocation in IExecutionContext creation: CPU +0, GPU +0, now: CPU 0, GPU 6678 (MiB)
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 43.29 MB GPU memory for runtime buffers.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 180.30 MB GPU memory for decoder.
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10 GiB, available: 70.48 GiB
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 4060
[TensorRT-LLM][INFO] Max KV cache pages per sequence: 32
[TensorRT-LLM][INFO] Number of tokens per block: 64.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 63.44 GiB for max tokens in paged KV cache (259840).
"""  # noqa: E501
# triton-inference-server/tensorrtllm_backend issue 625, 0.13 on an RTX 4090.
BACKEND = """
[TensorRT-LLM][INFO] Loaded engine size: 10194 MiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 196.76 MiB for execution context memory.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 648.06 KB GPU memory for runtime buffers.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 2.98 MB GPU memory for decoder.
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 23.99 GiB, available: 12.22 GiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 11.00 GiB for max tokens in paged KV cache (288384).
"""  # noqa: E501
# NVIDIA/TensorRT-LLM issue 1400, 0.8.
OLD = """
[TensorRT-LLM][INFO] Loaded engine size: 6683 MiB
[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache.
[TensorRT-LLM][INFO] Using 132608 tokens in paged KV cache.
"""
# A public benchmark's log of 0.14: limits first, then the engine.
LIMITS = """
[TensorRT-LLM][INFO] TRTGptModel maxBatchSize: 4096
[TensorRT-LLM][INFO] TRTGptModel maxNumTokens: 8192
[TensorRT-LLM][INFO] Loaded engine size: 6214 MiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 928.77 MiB for execution context memory.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.14 GB GPU memory for runtime buffers.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 4.35 GB GPU memory for decoder.
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10 GiB, available: 63.62 GiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 62.99 GiB for max tokens in paged KV cache (294848).
"""  # noqa: E501
# A pool too small: the longest sequence is cut without a word to the client.
SHORT = """
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 22.18 GiB, available: 1.42 GiB
[TensorRT-LLM][WARNING] maxAttentionWindow and maxSequenceLen are too large for at least one sequence to fit in kvCache. they are reduced to 5185
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.28 GiB for max tokens in paged KV cache (5248).
"""  # noqa: E501
# The PyTorch flow of 1.1: a small pool for the estimate first, then the real one.
TORCH = """
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.56 GiB for max tokens in paged KV cache (8224).
[12/20/2025-04:21:10] [TRT-LLM] [I] max_seq_len=8224, max_num_requests=64, max_num_tokens=8192, max_batch_size=64
[12/20/2025-04:21:50] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 63.52 GiB
[12/20/2025-04:21:50] [TRT-LLM] [I] Memory used after loading model weights (outside torch) in memory usage profiling: 49.78 GiB
[12/20/2025-04:21:51] [TRT-LLM] [I] Memory dynamically allocated during inference (inside torch) in memory usage profiling: 0.85 GiB
[12/20/2025-04:21:51] [TRT-LLM] [I] Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: 49.28 GiB
[12/20/2025-04:21:51] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 113.65 GiB, available KV cache memory when calculating max tokens: 5.95 GiB, fraction is set 0.8999999761581421, kv size is 73728. device total memory 119.70 GiB, , tmp kv_mem 0.56 GiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 5.95 GiB for max tokens in paged KV cache (86656).
"""  # noqa: E501
# trtllm-build of 0.9 (NVIDIA/TensorRT-LLM issue 1397), and TensorRT 10's form of the same lines.
BUILD = """
[04/07/2024-15:13:34] [TRT] [I] Total Scratch Memory: 537001984
[04/07/2024-15:13:34] [TRT] [I] Total Activation Memory: 3120566272
[04/07/2024-15:13:34] [TRT] [I] Total Weights Memory: 14483464192
"""
BUILD_10 = """
[10/07/2025-15:13:34] [TRT] [I] Total Activation Memory: 281018368 bytes
[10/07/2025-15:13:34] [TRT] [I] Total Weights Memory: 5600000000 bytes
"""


def only(text: str) -> EngineLog:
    (engine,) = parse_log(text)
    return engine


def test_the_runtimes_lines_of_the_documentation() -> None:
    found = only(DOCS)
    assert found.kind == "load"
    assert found.weights == 6695 * MIB
    assert found.activation == round(1134.01 * MIB)
    assert found.buffers == round(43.29 * MIB) + round(180.30 * MIB)
    assert (found.kv_tokens, found.tokens_per_block) == (259840, 64)
    assert found.free_at_kv == round(70.48 * GIB)
    assert found.gpu_total == round(79.10 * GIB)
    # 2 x 32 layers x 32 heads x 128 x 1 byte = 262144, and the size has two decimals of a GiB
    assert found.kv_bytes_per_token == pytest.approx(262144, rel=1e-3)


def test_small_buffers_are_in_kilobytes() -> None:
    assert only(BACKEND).runtime_buffers == round(648.06 * 1024)
    assert only(BACKEND).decoder_buffers == round(2.98 * MIB)


def test_an_old_version_says_bytes() -> None:
    assert (only(OLD).kv, only(OLD).kv_tokens) == (69524783104, 132608)
    assert only(OLD).kv_bytes_per_token == 524288  # Llama-7B in 16 bit: 2 x 32 x 32 x 128 x 2
    assert only(OLD).buffers is None


def test_limits_before_an_engine_are_its_own() -> None:
    found = only(LIMITS)
    assert (found.max_batch_size, found.max_num_tokens) == (4096, 8192)
    assert found.decoder_buffers == round(4.35 * GIB)


def test_a_cut_sequence_is_noticed() -> None:
    assert only(BACKEND.split("Memory usage")[0] + SHORT).reduced_seq_len == 5185


def test_the_pytorch_flow_counts_its_second_pool() -> None:
    found = only(TORCH)
    assert found.kind == "torch"
    assert found.weights == round(63.52 * GIB)
    assert found.activation == round(0.85 * GIB)
    assert found.outside_torch == round(49.28 * GIB)
    assert (found.kv, found.kv_tokens) == (round(5.95 * GIB), 86656)
    assert found.free_at_kv == round(5.95 * GIB)


@pytest.mark.parametrize(
    ("text", "weights", "activation"),
    [(BUILD, 14483464192, 3120566272), (BUILD_10, 5600000000, 281018368)],
)
def test_a_build_says_weights_and_activations(text: str, weights: int, activation: int) -> None:
    assert only(text) == EngineLog("build", weights=weights, activation=activation)


def test_ranks_are_one_engine_and_models_are_several() -> None:
    rank = "[TensorRT-LLM][INFO] Loaded engine size: 922 MiB\n"
    context = "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 2265.{} MiB for execution context memory.\n"
    assert only(rank * 4 + context.format(58) + context.format(60)).activation == round(2265.60 * MIB)
    first, second = parse_log(DOCS + BACKEND)
    assert (first.weights, second.weights) == (6695 * MIB, 10194 * MIB)
    assert second.kv_tokens == 288384


@pytest.mark.parametrize("text", ["", "nothing of it\n" * 50, "Loaded engine size: many MiB", "\x00\xff"])
def test_a_log_that_tells_of_no_engine(text: str) -> None:
    assert parse_log(text) == ()
