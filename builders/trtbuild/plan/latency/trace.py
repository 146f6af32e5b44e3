"""What happened in a simulation: times of each request and, where asked for, every run of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Gaps between tokens are counted in bins of a 32nd of an octave: 2.2 % wide.
BINS_PER_OCTAVE = 32


class Run(NamedTuple):
    """Steps of one composition; per step, the cached tokens as their mean over the steps."""

    tokens: int
    rows: int  # sequences whose next token is sampled
    kv_tokens: float  # cached tokens of those that decode
    window_kv_tokens: float
    pairs: float  # prompt tokens × the tokens that each attends to
    window_pairs: float
    steps: int


@dataclass
class RequestTimes:
    """Columns of request times in seconds; NaN: it did not come to that."""

    arrived: list[float]
    started: list[float]  # first taken into a batch
    first: list[float]  # first token, at the engine
    ended: list[float]

    @classmethod
    def of(cls, count: int) -> RequestTimes:
        columns = [[math.nan] * count for _ in range(4)]
        return cls(*columns)


class RunLog:
    """Every run of one replica in order; at which run each request came, got its first token and ended."""

    def __init__(self, count: int) -> None:
        self.runs: list[Run] = []
        self.begun_s: list[float] = []
        self.arrived = [0] * count
        self.first = [0] * count
        self.ended = [0] * count

    def table(self) -> NDArray[np.float64]:
        """Runs as rows of an array, with the columns of `Run`."""
        return np.array(self.runs, dtype=np.float64).reshape(-1, len(Run._fields))


class Trace:
    """Collects while a simulation runs."""

    def __init__(self, count: int, *, log: bool = False) -> None:
        self.times = RequestTimes.of(count)
        self.log = RunLog(count) if log else None
        self.gaps: dict[int, int] = {}  # bin of the length of a gap between tokens → tokens
        self.pauses = 0
        self.reused_tokens = 0
        self.busy_s = 0.0
        self.token_s = 0.0  # decoding sequences × time: over busy_s the mean batch

    def add_gaps(self, gap_s: float, count: int) -> None:
        """``count`` tokens came ``gap_s`` after the one before."""
        key = math.floor(math.log2(gap_s) * BINS_PER_OCTAVE)
        self.gaps[key] = self.gaps.get(key, 0) + count
