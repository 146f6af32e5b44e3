"""Values of which some are only known to be larger than what was waited for: right-censored data.

A request that timed out has no time to its first token, but that time is longer than the wait. Leaving it out
would make a server look the better the more it fails. The product-limit estimator (Kaplan and Meier, JASA 53,
1958) counts each such value as one that would have come later, like those that did come later; one that ended
at once (a refusal) so weighs nothing. Without such values, percentiles are the usual ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Observed:
    """Values in the order of time; where ``cut``, the true one is larger."""

    values: Values
    cut: npt.NDArray[np.bool_]

    @classmethod
    def whole(cls, values: npt.ArrayLike) -> Observed:
        """Values that are all known."""
        data = np.asarray(values, dtype=np.float64)
        return cls(data, np.zeros(len(data), dtype=bool))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def cuts(self) -> int:
        """How many are cut."""
        return int(self.cut.sum())


@dataclass(frozen=True)
class Quantile:
    """A quantile; where ``at_least``, it falls among values that were cut, and the true one is larger."""

    value: float
    at_least: bool


class Curve:
    """The distribution of observed values.

    Attributes:
        steps: the values that are known, ascending.
        share: of all requests, how many have a value up to each step.
    """

    def __init__(self, data: Observed) -> None:
        count = len(data)
        order = np.lexsort((data.cut, data.values))  # of equal values the known ones come first
        self._all, known = data.values[order], ~data.cut[order]
        left = np.cumprod(np.where(known, 1 - 1 / (count - np.arange(count)), 1.0))
        self.steps, self.share = self._all[known], 1 - left[known]
        # Each known value holds places in the order of all, its own and those of the cut ones before it.
        end = count * self.share - 1
        begin = np.concatenate(([0.0], end[:-1] + 1))[: len(end)]
        self._places = np.column_stack((begin, end)).ravel()

    def quantile(self, share: float) -> Quantile:
        """By linear interpolation between places; what `numpy.quantile` says if nothing is cut."""
        place = share * (len(self._all) - 1)
        if len(self.steps) and place <= self._places[-1] + 1e-9:
            return Quantile(float(np.interp(place, self._places, np.repeat(self.steps, 2))), at_least=False)
        known = float(self.steps[-1]) if len(self.steps) else 0.0
        return Quantile(max(known, float(np.quantile(self._all, share))), at_least=True)


def quantile(data: Observed, share: float) -> Quantile:
    """One quantile of observed values, of which there is at least one."""
    if not data.cut.any():
        return Quantile(float(np.quantile(data.values, share)), at_least=False)
    return Curve(data).quantile(share)
