"""An engine's steps as its answers show them: each running sequence gets one token in each step.

So two answers that overlap are in step with each other, and where one lies beside the other is told by all
their common tokens together, however late single ones came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_NEAR = 4  # steps around the nearest one among which an answer's place is looked for


@dataclass(frozen=True)
class MeasuredRequest:
    """One answered request: when it was sent, its prompt's tokens, and when tokens came. Times in seconds.

    ``arrivals`` are (time, tokens) of each response, at least one.
    """

    sent_s: float
    isl: int
    arrivals: tuple[tuple[float, int], ...]

    @property
    def first_s(self) -> float:
        return self.arrivals[0][0]

    @property
    def end_s(self) -> float:
        """When the last token came."""
        return self.arrivals[-1][0]

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.sent_s

    def token_s(self) -> NDArray[np.float64]:
        """When each token came; NaN: with a later one, so when it was made is not known."""
        times = [[np.nan] * (count - 1) + [at_s] for at_s, count in self.arrivals if count]
        return np.array([at_s for group in times for at_s in group])


@dataclass
class Step:
    """What one step did: sequences that decoded, their cached tokens, and the prompts that ended in it."""

    end_s: float = np.inf
    decoding: int = 0
    kv_tokens: int = 0
    prompts: tuple[int, ...] = ()  # their tokens
    clear: bool = True  # False: a prompt of several steps may have been computed in it

    @property
    def tokens(self) -> int:
        return self.decoding + sum(self.prompts)

    @property
    def rows(self) -> int:
        return self.decoding + len(self.prompts)

    @property
    def pairs(self) -> float:
        return sum(isl * (isl + 1) / 2 for isl in self.prompts)


def steps_of(requests: Sequence[MeasuredRequest], *, max_num_tokens: int) -> list[Step]:
    """The steps in their order, as far as answers show them.

    Where ``decoding`` is not 0, a step began when the one before it in the list ended: a sequence was in
    both. Prompts of more than ``max_num_tokens`` took several steps.
    """
    steps: list[Step] = []
    long: list[MeasuredRequest] = []
    for request in sorted(requests, key=lambda one: one.first_s):
        times = request.token_s()
        at = _place(steps, times)
        steps += [Step() for _ in range(at + len(times) - len(steps))]
        for made, time_s in enumerate(times.tolist()):
            step = steps[at + made]
            if made:
                step.decoding += 1
                step.kv_tokens += request.isl + made - 1
            else:
                step.prompts += (request.isl,)
            if time_s < step.end_s:  # the earliest: others were delayed on their way
                step.end_s = time_s
        if request.isl + steps[at].decoding > max_num_tokens:
            long.append(request)
    for request in long:
        for step in steps:
            step.clear &= not request.sent_s <= step.end_s <= request.first_s
    return steps


def _place(steps: list[Step], times: NDArray[np.float64]) -> int:
    """Index of the step that gave out the first of an answer's tokens; that after the last: a new one."""
    known = np.flatnonzero(~np.isnan(times))
    first = int(known[0])
    recent = np.array([step.end_s for step in steps[-(len(times) + 200) :]])
    base = len(steps) - len(recent)
    if not len(recent) or times[first] > recent.max():
        # after all that is known: in step with nobody, or as the next step of those that run
        return len(steps)
    nearest = int(np.searchsorted(np.maximum.accumulate(recent), times[first])) - first
    best, place = np.inf, len(steps)
    for at in range(max(0, nearest - _NEAR), nearest + _NEAR + 1):
        inside = known[known + at < len(recent)]
        if not len(inside) or at + int(inside[0]) < 0:
            continue
        away = np.abs(recent[inside + at] - times[inside])
        away = away[np.isfinite(away)]
        if len(away) and np.median(away) < best:
            best, place = float(np.median(away)), base + at
    return place


@dataclass(frozen=True)
class Blocks:
    """Neighbouring steps together, so that when single tokens came does not matter; sums, one row a block."""

    seconds: NDArray[np.float64]
    steps: NDArray[np.float64]
    tokens: NDArray[np.float64]
    rows: NDArray[np.float64]
    prompts: NDArray[np.float64]
    kv_tokens: NDArray[np.float64]
    pairs: NDArray[np.float64]
    matrices: NDArray[np.float64]  # steps of several tokens
    reshapes: NDArray[np.float64]  # steps of another number of tokens than the one before


_COLUMNS = len(fields(Blocks))


def blocks_of(steps: Sequence[Step], *, least_s: float) -> Blocks:
    """Blocks of at least ``least_s`` seconds; a step whose begin is not known ends one, and is in none."""
    rows: list[list[float]] = []
    current = [0.0] * _COLUMNS
    for before, step in pairwise(steps):
        known = step.decoding and step.clear and np.isfinite(step.end_s) and np.isfinite(before.end_s)
        if not known:
            current = [0.0] * _COLUMNS
            continue
        one = (
            step.end_s - before.end_s, 1, step.tokens, step.rows, len(step.prompts), step.kv_tokens,
            step.pairs, step.tokens > 1, step.tokens != before.tokens,
        )  # fmt: skip
        current = [total + value for total, value in zip(current, one, strict=True)]
        if current[0] >= least_s:
            rows.append(current)
            current = [0.0] * _COLUMNS
    return Blocks(*np.array(rows, dtype=np.float64).reshape(-1, _COLUMNS).T)
