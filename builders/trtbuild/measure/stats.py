"""Percentiles, means and differences with intervals that say how sure they are.

Percentile intervals are distribution-free (order statistics and the binomial distribution; David and
Nagaraja, Order Statistics, 3rd ed., 7.1). Requests of one run are not independent (a full queue makes
neighbours slow together), so the count that goes into the binomial is the effective one,
``n·(1 − ρ)/(1 + ρ)`` with ρ the rank autocorrelation of neighbours (0 where it is negative).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trtbuild.measure.censored import Curve, Observed, Values
from trtbuild.measure.censored import quantile as quantile_of

CONFIDENCE = 0.95
QUANTILES = (0.5, 0.9, 0.95, 0.99)
RESAMPLES = 2000
_DRAWN = 4_000_000  # values that are resampled at once
BATCHES = (5, 20)  # parts of the time, for the interval of a rate: as many as have 16 events each


@dataclass(frozen=True)
class Estimate:
    """A value with its interval at `CONFIDENCE`. None where the data does not carry it; ``why`` says so.

    Attributes:
        at_least: the true value is larger: it falls among what was not waited for, see `censored`. ``high``
            is then None, and so it is where the interval alone reaches there.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    why: str = ""
    at_least: bool = False

    def as_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"value": self.value, "low": self.low, "high": self.high}
        data |= {"at_least": True} if self.at_least else {}
        return {**data, "why": self.why} if self.why else data


def effective_count(values: Values) -> float:
    """How many independent values the sequence, in its order in time, is worth."""
    count = len(values)
    if count < 4:
        return float(count)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float)
    ranks -= ranks.mean()
    spread = float(ranks @ ranks)
    if spread == 0 or values.min() == values.max():
        return float(count)
    rho = float(ranks[:-1] @ ranks[1:]) / spread
    rho = min(max(rho, 0.0), 0.99)
    return max(1.0, count * (1 - rho) / (1 + rho))


def least_count(quantile: float) -> int:
    """The fewest values whose largest lies above the quantile with 97.5 % certainty: n with qⁿ ≤ 0.025.

    6 for the median, 36 for P90, 72 for P95, 368 for P99.
    """
    q = max(quantile, 1 - quantile)
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(q))


def percentile(values: Observed | Sequence[float] | Values, quantile: float) -> Estimate:
    """A percentile of values in the order of time, with its interval; see `censored` for cut ones."""
    from scipy.stats import binom

    data = values if isinstance(values, Observed) else Observed.whole(values)
    count, least = len(data), least_count(quantile)
    if count < least:
        return Estimate(None, why=f"P{100 * quantile:g} needs {least} requests, there are {count}")
    effective = max(effective_count(data.values), 1.0)
    tail = (1 - CONFIDENCE) / 2
    whole = max(1, round(effective))
    low = float(binom.ppf(tail, whole, quantile)) / whole
    high = (float(binom.ppf(1 - tail, whole, quantile)) + 1) / whole
    curve = Curve(data)
    at, below, above = (curve.quantile(min(share, 1.0)) for share in (quantile, low, high))
    why = "" if effective >= least else f"neighbours are alike: worth {effective:.0f} requests of {least}"
    return Estimate(at.value, below.value, None if above.at_least else above.value, why, at.at_least)


def share(hits: int, count: int) -> Estimate:
    """A proportion with Wilson's interval."""
    if count == 0:
        return Estimate(None, why="no requests")
    z = 1.959964
    p = hits / count
    middle = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    # At the ends the interval reaches them exactly; floating point would say 3e-17.
    low, high = middle - half if hits else 0.0, middle + half if hits < count else 1.0
    return Estimate(p, max(0.0, low), min(1.0, high))


def rate(times_s: Sequence[float], weights: Sequence[float], window_s: tuple[float, float]) -> Estimate:
    """Sum of weights a second inside the window, with an interval from the spread over equal parts of it."""
    from scipy.stats import t as student

    begin_s, end_s = window_s
    length_s = end_s - begin_s
    if length_s <= 0:
        return Estimate(None, why="nothing was measured")
    count = min(max(len(times_s) // 16, BATCHES[0]), BATCHES[1])
    parts, _ = np.histogram(times_s, bins=count, range=window_s, weights=weights)
    value = float(parts.sum()) / length_s
    half = float(student.ppf((1 + CONFIDENCE) / 2, count - 1)) * float(parts.std(ddof=1)) / math.sqrt(count)
    half *= count / length_s
    return Estimate(value, max(0.0, value - half), value + half)


def mean(values: Observed | Sequence[float]) -> Estimate:
    """The mean with Student's interval over the effective count; a lower bound if values are cut."""
    from scipy.stats import t as student

    observed = values if isinstance(values, Observed) else Observed.whole(values)
    data = observed.values
    if observed.cuts:
        return Estimate(float(data.mean()), why=f"{observed.cuts} are longer than that", at_least=True)
    if len(data) < 2:
        return Estimate(float(data[0]) if len(data) else None, why="one value" if len(data) else "no values")
    effective = max(2.0, effective_count(data))
    half = (
        float(student.ppf((1 + CONFIDENCE) / 2, effective - 1))
        * float(data.std(ddof=1))
        / math.sqrt(effective)
    )
    return Estimate(float(data.mean()), float(data.mean()) - half, float(data.mean()) + half)


def quantile_difference(
    before: Observed | Values, after: Observed | Values, quantile: float, *, seed: int = 0
) -> Estimate:
    """``after − before`` of a percentile, with the percentile bootstrap over blocks of neighbours.

    Blocks keep the dependence of neighbours; their length is n / effective count. Where one percentile is
    only known to be at least something, the interval has one end: ``high`` is None if that is ``after``'s,
    ``low`` if it is ``before``'s.
    """
    rng = np.random.default_rng(seed)
    pair = [side if isinstance(side, Observed) else Observed.whole(side) for side in (before, after)]
    drawn = [_resampled(side, quantile, rng) for side in pair]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn[1] - drawn[0], [tail, 1 - tail])
    old, new = (quantile_of(side, quantile) for side in pair)
    return Estimate(
        new.value - old.value, None if old.at_least else float(low), None if new.at_least else float(high)
    )


def _resampled(data: Observed, quantile: float, rng: np.random.Generator) -> Values:
    """The quantile of each of `RESAMPLES` resamples, a part of them at a time."""
    found: list[float] = []
    rows = max(1, min(RESAMPLES, _DRAWN // len(data)))
    while len(found) < RESAMPLES:
        indices = _blocks(data.values, rng, min(rows, RESAMPLES - len(found)))
        if data.cut.any():
            found += [
                quantile_of(Observed(data.values[row], data.cut[row]), quantile).value for row in indices
            ]
        else:
            found += np.quantile(data.values[indices], quantile, axis=1, overwrite_input=True).tolist()
    return np.asarray(found)


def _blocks(data: Values, rng: np.random.Generator, rows: int) -> npt.NDArray[np.intp]:
    """Indices of ``rows`` circular block resamples, one a row."""
    count = len(data)
    length = max(1, round(count / effective_count(data)))
    starts = rng.integers(0, count, (rows, math.ceil(count / length)))
    indices = (starts[:, :, None] + np.arange(length)) % count
    return indices.reshape(rows, -1)[:, :count].astype(np.intp)
