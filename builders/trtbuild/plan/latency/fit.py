"""Fits the constants of the latency model on published figures: few, positive, near what physics allows.

Robust least squares (soft L1) on the logarithms of predicted over published values, and of the constants over
a first guess, which keeps a constant where no record says anything about it. Schedules of timed arrivals are
simulated anew between the rounds.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtbuild.catalog.latency import LatencyConstants, Spread, arithmetic
from trtbuild.plan.latency.cases import Case, Timing

_ROUNDS = 2
_EVALUATIONS = 12
_TYPICAL_ERROR = 0.15  # errors beyond it pull linearly, not with their square
_STEP = 1e-3
_LEAST_GROUPS = 2  # one group cannot tell a constant from its own peculiarities


Place = tuple[str, ...]


@dataclass(frozen=True)
class Guess:
    """A constant before anything was fitted; ``spread``: how far off the guess may be, as a logarithm."""

    value: float
    spread: float = 0.5
    least: float = 0.0
    most: float = float("inf")


# By the last parts of a constant's path. Shares of a data sheet's rate cannot exceed 1.
_SHARE = Guess(0.65, 0.1, 0.02, 1.0)  # dense products reach 0.58 to 0.71 wherever there are many records
_NARROW = Guess(0.4, 0.4, 0.02, 1.0)
GUESSES: dict[Place, Guess] = {
    ("roundness",): Guess(2.0, 0.3, 1.0, 8.0),
    ("elementwise_bytes_per_width",): Guess(20.0),
    ("logits_bytes_per_entry",): Guess(20.0),
    ("kv",): Guess(0.9, 0.3, 0.1, 1.0),
    ("attention",): Guess(0.5, 0.5, 0.02, 1.0),
    ("head",): Guess(0.5, 0.3, 0.02, 1.0),
    ("experts",): Guess(0.7, 0.5, 0.02, 1.0),
    ("layer_s",): Guess(1e-5, 1.0),
    ("memory",): Guess(0.8, 0.4, 0.1, 1.0),
    **{("linear", kind): _SHARE for kind in ("fp16", "fp8", "int8")},
    **{("linear", kind): _NARROW for kind in ("fp4", "w4a16", "w4a8", "w8a16")},
    ("nvlink", "reduce_s"): Guess(8e-6),
    ("pcie", "reduce_s"): Guess(3e-5),
    ("efficiency",): Guess(0.6, 0.5, 0.05, 1.0),
    ("step_s",): Guess(1e-3, 1.0),
    ("sequence_s",): Guess(5e-6, 1.0),
    ("request_s",): Guess(3e-3, 1.0),
}


def fit(cases: Sequence[Case], start: LatencyConstants) -> LatencyConstants:
    """The constants that meet the records of ``cases`` best; those that fewer than two groups touch become
    the guess.

    ``start`` gives the families, links and flows there are; its values are where the first schedules of timed
    arrivals are simulated.
    """
    from scipy.optimize import least_squares

    tree = start.model_dump()
    paths = [path for path in _paths(tree) if _guess(path) is not None]
    for path in paths:
        _set(tree, path, _guess_of(path).value)
    used = [path for path in paths if len(_groups(path, cases, start)) >= _LEAST_GROUPS]
    guesses = [_guess_of(path) for path in used]
    centre = np.log([guess.value for guess in guesses])
    spread = np.array([guess.spread for guess in guesses])
    bounds = (
        np.log([max(guess.least, guess.value * 1e-4) for guess in guesses]),
        np.log([min(guess.most, guess.value * 1e4) for guess in guesses]) + 1e-9,
    )
    touched = [
        np.array([number for number, case in enumerate(cases) if _touches(path, case, start)])
        for path in used
    ]
    point = centre
    for _ in range(_ROUNDS):
        timings = [Timing(case, _built(tree, used, point)) for case in cases]
        problem = _Problem(tree, used, timings, touched, centre, spread)
        solution = least_squares(
            problem.residuals,
            point,
            jac=problem.jacobian,
            bounds=bounds,
            loss="soft_l1",
            x_scale="jac",
            max_nfev=_EVALUATIONS,
        )
        point = solution.x
    fitted = _built(tree, used, point)
    return _with_counts(fitted, cases, used)


class _Problem:
    def __init__(
        self,
        tree: dict[str, Any],
        paths: Sequence[Place],
        timings: Sequence[Timing],
        touched: Sequence[NDArray[np.int64]],
        centre: NDArray[np.float64],
        spread: NDArray[np.float64],
    ) -> None:
        self._tree, self._paths, self._timings, self._touched = tree, paths, timings, touched
        self._centre, self._spread = centre, spread
        kinds = Counter(timing.case.record.kind for timing in timings)
        # throughput, first tokens and gaps count alike, though there are more records of throughput
        shares = [len(timings) / len(kinds) / kinds[timing.case.record.kind] for timing in timings]
        groups = Counter(timing.case.record.group for timing in timings)
        # records of a group share their errors: a group counts as one, however many figures it has
        alike = [len(timings) / len(groups) / groups[timing.case.record.group] for timing in timings]
        self._weights = np.sqrt(np.minimum(4.0, shares) * np.minimum(4.0, alike)) / _TYPICAL_ERROR

    def residuals(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        errors = log_errors(self._timings, _built(self._tree, self._paths, point))
        return np.concatenate([self._weights * errors, (point - self._centre) / self._spread])

    def jacobian(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        """By differences; a constant is tried on the records that it touches."""
        errors = log_errors(self._timings, _built(self._tree, self._paths, point))
        slopes = np.zeros((len(self._timings) + len(point), len(point)))
        for column, rows in enumerate(self._touched):
            moved = point.copy()
            moved[column] += _STEP
            constants = _built(self._tree, self._paths, moved)
            change = log_errors([self._timings[row] for row in rows], constants) - errors[rows]
            slopes[rows, column] = self._weights[rows] * change / _STEP
            slopes[len(self._timings) + column, column] = 1 / self._spread[column]
        return slopes


def log_errors(timings: Sequence[Timing], constants: LatencyConstants) -> NDArray[np.float64]:
    """Logarithms of predicted over published values."""
    return np.array([np.log(timing.predict(constants) / timing.case.record.value) for timing in timings])


def spreads(timings: Sequence[Timing], constants: LatencyConstants) -> dict[str, Spread]:
    """How published values lie about predicted ones, by kind of figure."""
    factors: dict[str, list[float]] = {}
    for timing, error in zip(timings, log_errors(timings, constants), strict=True):
        factors.setdefault(timing.case.record.kind, []).append(float(np.exp(-error)))
    found = {}
    for kind, values in factors.items():
        p10, p50, p90 = (round(float(value), 3) for value in np.quantile(values, (0.1, 0.5, 0.9)))
        found[kind] = Spread(p10=p10, p50=p50, p90=p90, records=len(values))
    return found


def _paths(tree: dict[str, Any], above: Place = ()) -> list[Place]:
    found: list[Place] = []
    for key, value in tree.items():
        if isinstance(value, dict):
            found += _paths(value, (*above, key))
        elif isinstance(value, float):
            found.append((*above, key))
    return found


def _guess(path: Place) -> Guess | None:
    return GUESSES.get(path[-2:]) or GUESSES.get(path[-1:])


def _guess_of(path: Place) -> Guess:
    guess = _guess(path)
    assert guess is not None
    return guess


def _touches(path: Place, case: Case, constants: LatencyConstants) -> bool:
    """Whether a constant has a part in a case's prediction."""
    if path[0] == "families":
        if constants.families[path[1]] is not constants.family(case.gpu):
            return False
        return path[2] == "memory" or path[3] == arithmetic(case.fmt, case.gpu)
    if path[0] == "links":
        return case.work.tp > 1
    if path[0] == "flows":
        return path[1] == case.record.flow
    return path[0] != "experts" or case.work.expert_bytes > 0


def _groups(path: Place, cases: Sequence[Case], constants: LatencyConstants) -> set[str]:
    return {case.record.group for case in cases if _touches(path, case, constants)}


def _set(tree: dict[str, Any], path: Place, value: float) -> None:
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


def _built(tree: dict[str, Any], paths: Sequence[Place], point: NDArray[np.float64]) -> LatencyConstants:
    built = copy.deepcopy(tree)
    for path, value in zip(paths, np.exp(point), strict=True):
        _set(built, path, float(value))
    return LatencyConstants.model_validate(built)


def _with_counts(
    constants: LatencyConstants, cases: Sequence[Case], used: Sequence[Place]
) -> LatencyConstants:
    counts = Counter((id(constants.family(case.gpu)), arithmetic(case.fmt, case.gpu)) for case in cases)
    families = {}
    for name, family in constants.families.items():
        records = {
            kind: counts[id(family), kind] if ("families", name, "linear", kind) in used else 0
            for kind in family.linear
        }
        families[name] = family.model_copy(update={"records": records})
    return constants.model_copy(update={"families": families})
