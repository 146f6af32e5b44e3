"""The served text path over the same engine in process: interleaved pairs, ratios, CPU by process.

Both arms have the same weights, KV pool and limits, run on the same cores, and answer the same prompts with
the same number of greedy tokens. The served arm counts the client's CPU, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from trtbuild.measure.in_process import Burst, BurstResult, EngineSettings

SUBJECTS = ("tea", "rivers", "clocks", "bread", "maps", "wool", "bridges", "salt", "kites", "glass")


@dataclass(frozen=True)
class Pair:
    """One served and one in-process run of the same burst, a moment apart."""

    served: BurstResult
    in_process: BurstResult
    cpu_s_by_process: dict[str, float]  # of the served arm

    @property
    def throughput_ratio(self) -> float:
        return (self.served.tokens / self.served.seconds) / (self.in_process.tokens / self.in_process.seconds)


@dataclass(frozen=True)
class LevelResult:
    """All pairs at one number of streams. Ratios are medians over the pairs."""

    streams: int
    pairs: int
    ratio: float
    ratio_low: float
    ratio_high: float
    served_tokens_per_s: float
    in_process_tokens_per_s: float
    in_process_cpu_ms_per_token: float
    cpu_ms_per_token_by_process: dict[str, float]


def prompts_for(streams: int, *, round_number: int) -> tuple[str, ...]:
    """Distinct prompts, also between rounds, so that the prefix cache helps neither arm."""
    return tuple(
        f"{round_number}.{index}: a short note on {SUBJECTS[(index + round_number) % len(SUBJECTS)]}."
        for index in range(streams)
    )


class InProcess:
    """The baseline's process."""

    def __init__(self, weights: Path, settings: EngineSettings) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "trtbuild.measure.in_process", str(weights), json.dumps(asdict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()  # "ready"

    def _answer(self) -> Any:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the in-process engine ended with exit code {self._child.wait()}")
        return json.loads(line)

    @property
    def pid(self) -> int:
        return self._child.pid

    def run(self, burst: Burst) -> BurstResult:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(asdict(burst)) + "\n")
        self._child.stdin.flush()
        return BurstResult(**self._answer())

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()


class CpuClock:
    """User and system seconds of a server's processes and of this one, by role."""

    def __init__(self, server_pid: int) -> None:
        self._server = psutil.Process(server_pid)

    def processes_but(self, role: str) -> list[int]:
        """Ids of the server's processes, itself included, but those of a role."""
        children = self._server.children(recursive=True)
        return [self._server.pid, *(child.pid for child in children if _role(child.cmdline()) != role)]

    def read(self) -> dict[str, float]:
        """Seconds so far; keys are ``client``, ``tritonserver`` and the models of the stubs."""
        seconds = {"client": _seconds(psutil.Process()), "tritonserver": _seconds(self._server)}
        for child in self._server.children(recursive=True):
            role = _role(child.cmdline())
            seconds[role] = seconds.get(role, 0.0) + _seconds(child)
        return seconds


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _role(command: Sequence[str]) -> str:
    """The model that a process runs, by the ``…/MODEL/1/model.py`` in its command line."""
    for word in command:
        parts = Path(word).parts
        if word.endswith("model.py") and len(parts) > 2:
            return parts[-3] if parts[-2].isdigit() else parts[-2]
    return "helpers"


def pin(process: int, core: int) -> None:
    """Binds a process with all its threads to one core."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


async def run_served(
    client: Any, model: str, prompts: Sequence[str], *, max_tokens: int
) -> tuple[float, float, int]:
    """One burst through the server: seconds, the slowest stream's TTFT in seconds, and tokens."""
    begun = time.perf_counter()

    async def one(prompt: str) -> tuple[float, int]:
        first = 0.0
        async with client.stream(
            model, prompt, max_tokens=max_tokens, min_tokens=max_tokens, top_k=1
        ) as stream:
            async for _ in stream:
                first = first or time.perf_counter() - begun
            result = await stream.result()
        return first, result.usage.completion_tokens

    answers = await asyncio.gather(*(one(prompt) for prompt in prompts))
    return time.perf_counter() - begun, max(first for first, _ in answers), sum(count for _, count in answers)


@contextmanager
def baseline(weights: Path, settings: EngineSettings) -> Iterator[InProcess]:
    """The in-process arm, ended with the block."""
    arm = InProcess(weights, settings)
    try:
        yield arm
    finally:
        arm.close()


def summarise(streams: int, pairs: Sequence[Pair]) -> LevelResult:
    """Medians over the pairs; CPU milliseconds per token over all of them."""
    ratios = sorted(pair.throughput_ratio for pair in pairs)
    served_tokens = sum(pair.served.tokens for pair in pairs)
    own_tokens = sum(pair.in_process.tokens for pair in pairs)
    by_process: dict[str, float] = {}
    for pair in pairs:
        for role, seconds in pair.cpu_s_by_process.items():
            by_process[role] = by_process.get(role, 0.0) + seconds
    return LevelResult(
        streams=streams,
        pairs=len(pairs),
        ratio=statistics.median(ratios),
        ratio_low=ratios[0],
        ratio_high=ratios[-1],
        served_tokens_per_s=statistics.median(pair.served.tokens / pair.served.seconds for pair in pairs),
        in_process_tokens_per_s=statistics.median(
            pair.in_process.tokens / pair.in_process.seconds for pair in pairs
        ),
        in_process_cpu_ms_per_token=1000 * sum(pair.in_process.cpu_s for pair in pairs) / own_tokens,
        cpu_ms_per_token_by_process={
            role: 1000 * s / served_tokens for role, s in sorted(by_process.items())
        },
    )
