"""What TensorRT-LLM's own logs say of memory: a build's, a load's by the C++ runtime, a load's by PyTorch.

The lines are those of 0.8 to 1.3 (cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp, runtime/tllmRuntime.cpp,
common/memoryUtils.h; tensorrt_llm/_torch/pyexecutor/_util.py) and of TensorRT 9 and 10. Sizes are printed
with two decimals. The runtime's KB, MB and GB are powers of 1024.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

_UNITS = {"": 1, "B": 1, "BYTES": 1}
_UNITS |= {
    name: 1 << 10 * power for power in (1, 2, 3) for name in (f"{' KMG'[power]}B", f"{' KMG'[power]}IB")
}

_SIZE = r"(?P<size>\d+(?:\.\d+)?) ?(?P<unit>[KMG]?i?B|bytes)?"
_TORCH = r" in memory usage profiling: "
# Field, and what stands around its value. The first capture named size (with unit) or count is taken.
_LINES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("weights", rf"Loaded engine size: {_SIZE}"),
        ("weights", rf"Total Weights Memory: {_SIZE}"),
        ("weights", rf"Memory used after loading model weights \(inside torch\){_TORCH}{_SIZE}"),
        ("activation", rf"Allocated {_SIZE} for execution context memory"),
        ("activation", rf"Total Activation Memory: {_SIZE}"),
        ("activation", rf"Memory dynamically allocated during inference \(inside torch\){_TORCH}{_SIZE}"),
        ("runtime_buffers", rf"Allocated {_SIZE} GPU memory for runtime buffers"),
        ("decoder_buffers", rf"Allocated {_SIZE} GPU memory for decoder"),
        ("outside_torch", rf"Memory used outside torch (?:\(e\.g\., NCCL and CUDA graphs\) )?in memory usage "
                          rf"profiling: {_SIZE}"),
        ("gpu_total", rf"max tokens in paged kv cache: total: {_SIZE}"),
        ("gpu_total", rf"device total memory {_SIZE}"),
        ("free_at_kv", rf"max tokens in paged kv cache: total: [\d.]+ GiB, available: {_SIZE}"),
        ("free_at_kv", rf"available KV cache memory when calculating max tokens: {_SIZE}"),
        ("kv", rf"Allocated {_SIZE} for max tokens in paged KV cache"),
        ("kv", rf"Allocate {_SIZE} for k/v cache"),
        ("kv_tokens", r"for max tokens in paged KV cache \((?P<count>\d+)\)"),
        ("kv_tokens", r"Using (?P<count>\d+) tokens in paged KV cache"),
        ("tokens_per_block", r"Number of tokens per block: (?P<count>\d+)"),
        ("max_batch_size", r"TRTGptModel maxBatchSize: (?P<count>\d+)"),
        ("max_batch_size", r"max_num_tokens=\d+, max_batch_size=(?P<count>\d+)"),
        ("max_num_tokens", r"TRTGptModel maxNumTokens: (?P<count>\d+)"),
        ("max_num_tokens", r"max_num_requests=\d+, max_num_tokens=(?P<count>\d+)"),
        ("reduced_seq_len", r"maxSequenceLen are too large .*?reduced to (?P<count>\d+)"),
        ("reduced_seq_len", r"Adjusted max_seq_len to (?P<count>\d+)"),
    )
)  # fmt: skip
# What an engine's lines begin with; ranks of one engine repeat it before anything else is said.
_FIRST = "weights"
# Of ranks the largest counts; of what is said again later (the estimate's small pool first) the last.
_LAST_COUNTS = ("kv", "kv_tokens", "reduced_seq_len")


@dataclass(frozen=True)
class EngineLog:
    """One engine as a log tells of it, on the rank that takes most; None: not said.

    Attributes:
        kind: ``build``: trtllm-build; ``load``: the C++ runtime; ``torch``: the PyTorch flow.
        outside_torch: what CUDA, NCCL and CUDA graphs hold, by the PyTorch flow's own account.
        free_at_kv: free device memory when the KV pool was made.
        reduced_seq_len: the longest sequence, where the pool was too small for the asked one.
    """

    kind: Literal["build", "load", "torch"]
    weights: int | None = None
    activation: int | None = None
    runtime_buffers: int | None = None
    decoder_buffers: int | None = None
    outside_torch: int | None = None
    gpu_total: int | None = None
    free_at_kv: int | None = None
    kv: int | None = None
    kv_tokens: int | None = None
    tokens_per_block: int | None = None
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    reduced_seq_len: int | None = None

    @property
    def buffers(self) -> int | None:
        """Runtime and decoder buffers together; the plan has them in one item."""
        if self.runtime_buffers is None or self.decoder_buffers is None:
            return None
        return self.runtime_buffers + self.decoder_buffers

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Of the pool as it was allocated; its size is printed with two decimals of a GiB."""
        return self.kv / self.kv_tokens if self.kv and self.kv_tokens else None


def parse_log(text: str) -> tuple[EngineLog, ...]:
    """The engines that a log tells of, in its order; empty if it tells of none."""
    engines: list[dict[str, list[int]]] = []
    kinds: list[Literal["build", "load", "torch"]] = []
    ahead: dict[str, list[int]] = {}  # limits are said before the engine's file is read
    for line in text.splitlines():
        for name, value in _values(line):
            starts = name == _FIRST and (not engines or "activation" in engines[-1])
            if starts:
                engines.append(ahead)
                ahead = {}
                kinds.append(
                    "build" if "Total Weights" in line else "torch" if "inside torch" in line else "load"
                )
            elif (
                name == "activation"
                and "Total Activation" in line
                and (not engines or "activation" in engines[-1])
            ):  # a build says it before the weights
                ahead.setdefault(name, []).append(value)
                continue
            before = name in ("max_batch_size", "max_num_tokens") and (
                not engines or ("kv" in engines[-1] and kinds[-1] == "load")
            )
            (ahead if before or not engines else engines[-1]).setdefault(name, []).append(value)
    names = {field.name for field in fields(EngineLog)}
    return tuple(
        EngineLog(
            kind,
            **{
                name: values[-1] if name in _LAST_COUNTS else max(values)
                for name, values in found.items()
                if name in names
            },
        )
        for kind, found in zip(kinds, engines, strict=True)
    )


def _values(line: str) -> Iterator[tuple[str, int]]:
    for name, pattern in _LINES:
        match = pattern.search(line)
        if match is None:
            continue
        groups = match.groupdict()
        if "count" in groups:
            yield name, int(groups["count"])
        else:
            yield name, round(float(groups["size"]) * _UNITS[(groups["unit"] or "").upper()])
