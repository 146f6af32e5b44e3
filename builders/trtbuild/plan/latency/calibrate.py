"""The cost of a step from one measured run, such as on a machine of which no published figure exists.

When tokens came says what each step did and how long it took (`steps`). The constants are those with which
neighbouring steps, and the first tokens of requests that came to an idle engine, take as long as measured
(robust least squares on logarithms). A step that has another number of tokens than the one before it is
priced apart: with few streams only those around a prompt are such, with many nearly all are. How first
tokens scatter around that is kept too: percentiles of a load are of the scattered times. The simulator then
predicts other loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trtbuild.catalog.latency import Spread
from trtbuild.errors import PlanError
from trtbuild.plan.latency.cost import Rates, StepCost
from trtbuild.plan.latency.steps import Blocks, MeasuredRequest, blocks_of, steps_of
from trtbuild.plan.latency.work import ModelWork

LEAST_REQUESTS = 50
_BLOCK_S = 0.1  # some steps of a small model on a CPU: single tokens come late and in bursts
_TYPICAL_ERROR = 0.1
_SAME_S = 1e-6  # a user's next request comes when the answer ends
_GUESS_SPREAD = 2.0  # logarithms: guesses are of the order of magnitude alone
_SCATTER = np.linspace(0.025, 0.975, 20)  # quantiles that stand for a twentieth of the requests each


@dataclass(frozen=True)
class Calibration:
    """What a run gave: the cost of a step, and how far predicted times lie from measured ones.

    ``errors`` are median sizes of the relative errors of the run's own first tokens and steps; ``scatter``
    are quantiles, evenly spaced, of measured over predicted times to the first token.
    """

    cost: StepCost
    spreads: dict[str, Spread]
    errors: dict[str, float]
    scatter: tuple[float, ...]
    requests: int
    most_at_once: int


# What one step costs: seconds each. The guess is of a small model on a CPU.
_GUESSES = {
    "token_s": 5e-4,  # arithmetic of a token
    "step_s": 5e-3,
    "matrix_s": 1e-3,  # where a step has several tokens
    "reshape_s": 3e-3,  # where it has another number of them than the one before
    "sequence_s": 5e-4,  # lm_head, sampling, response, transport and client, for each token that is given out
    "prompt_s": 1e-3,  # tokenising and taking in a request, which steps that run meanwhile pay for
    "kv_token_s": 1e-6,  # for each cached token that decoding reads
    "pair_s": 1e-7,  # for each pair of a prompt's token and one before it
    "request_s": 5e-3,  # outside of any step
}


def calibrate(
    requests: Sequence[MeasuredRequest],
    *,
    max_num_tokens: int = 1 << 30,
    disturbed_s: Sequence[tuple[float, float]] = (),
) -> Calibration:
    """The step's cost with which the simulator meets a run.

    Args:
        max_num_tokens: of the engine that was measured: longer prompts take several steps.
        disturbed_s: intervals that are left out, in which the machine did something else besides.

    Raises:
        PlanError: too few requests, or all of one length, from which no constants follow.
    """
    ordered = sorted(requests, key=lambda one: one.sent_s)
    _refuse_what_tells_nothing(ordered)
    steps = steps_of(ordered, max_num_tokens=max_num_tokens)
    for step in steps:
        step.clear &= not _within(disturbed_s, step.end_s, step.end_s)
    blocks = blocks_of(steps, least_s=_BLOCK_S)
    alone = _Alone(
        [
            one
            for one in _alone(ordered)
            if one.isl <= max_num_tokens and not _within(disturbed_s, one.sent_s, one.first_s)
        ]
    )
    centre = np.log(list(_GUESSES.values()))
    from scipy.optimize import least_squares

    def residuals(point: NDArray[np.float64]) -> NDArray[np.float64]:
        cost = _cost(point)
        errors = np.concatenate([alone.errors(cost), _errors(blocks, cost)]) / _TYPICAL_ERROR
        return np.concatenate([errors, (point - centre) / _GUESS_SPREAD])

    bounds = (centre - 8.0, centre + 8.0)
    solution = least_squares(residuals, centre, bounds=bounds, loss="soft_l1", max_nfev=200)
    cost = _cost(solution.x)
    first, decode = alone.errors(cost), _errors(blocks, cost)
    return Calibration(
        cost=cost,
        spreads={"ttft": _spread(first), "tpot": _spread(decode)},
        errors={"ttft": _median_size(first), "tpot": _median_size(decode)},
        scatter=tuple(np.quantile(np.exp(-first), _SCATTER).tolist()) if len(first) else (1.0,),
        requests=len(ordered),
        most_at_once=_most_at_once(ordered),
    )


def slowness(requests: Sequence[MeasuredRequest], cost: StepCost, *, max_num_tokens: int) -> float:
    """A run's step times over those that ``cost`` gives for the same steps: how much slower the machine was.

    Raises:
        PlanError: no neighbouring steps are known.
    """
    blocks = blocks_of(steps_of(requests, max_num_tokens=max_num_tokens), least_s=_BLOCK_S)
    if not len(blocks.seconds):
        raise PlanError("no two steps of the run follow each other: how long one took is not known")
    return float(np.exp(-np.average(_errors(blocks, cost), weights=blocks.seconds)))


def _within(intervals_s: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> bool:
    return any(begin <= end_s and begin_s <= end for begin, end in intervals_s)


def _refuse_what_tells_nothing(requests: Sequence[MeasuredRequest]) -> None:
    if len(requests) < LEAST_REQUESTS:
        raise PlanError(
            f"the run has {len(requests)} answers with token counts; {LEAST_REQUESTS} are the least",
            "a longer run: `simulate --calibration-load FILE` writes one for `bench --load FILE`",
        )
    prompts = [one.isl for one in requests]
    if max(prompts) < 2 * min(prompts):
        raise PlanError(
            f"all prompts of the run have {min(prompts)} to {max(prompts)} tokens: what a token costs "
            "cannot be told from what a step costs",
            "a load of short and long prompts: `trtbuild simulate --calibration-load FILE` writes one",
        )


def _alone(requests: Sequence[MeasuredRequest]) -> list[MeasuredRequest]:
    """Requests whose prompt nothing ran beside: from when they were sent until their first token."""
    sent = np.array([one.sent_s for one in requests])
    first, end = np.array([one.first_s for one in requests]), np.array([one.end_s for one in requests])
    beside = (sent[None, :] < first[:, None]) & (end[None, :] > sent[:, None] + _SAME_S)
    return [one for one, others in zip(requests, beside.sum(1), strict=True) if others <= 1]


class _Alone:
    """First tokens of requests that came to an idle engine, as arrays over them."""

    def __init__(self, requests: Sequence[MeasuredRequest]) -> None:
        self._isl = np.array([float(one.isl) for one in requests])
        self._ttft_s = np.array([one.ttft_s for one in requests])

    def errors(self, cost: StepCost) -> NDArray[np.float64]:
        """Logarithms of predicted over measured."""
        step = cost.base_s(self._isl, np.ones_like(self._isl)) + cost.pair_s * self._isl**2 / 2
        # the step before was of an answer that ended, and so of one token
        step = step + cost.rates.reshape_s * (self._isl > 1)
        return np.asarray(np.log((cost.rates.request_s + cost.rates.prompt_s + step) / self._ttft_s))


def _errors(blocks: Blocks, cost: StepCost) -> NDArray[np.float64]:
    """Logarithms of predicted over measured."""
    predicted = (
        cost.rates.step_s * blocks.steps
        + cost.work.dense_ops_per_token * blocks.tokens
        + cost.rates.sequence_s * blocks.rows
        + cost.rates.prompt_s * blocks.prompts
        + cost.rates.matrix_s * blocks.matrices
        + cost.rates.reshape_s * blocks.reshapes
        + cost.kv_token_s * blocks.kv_tokens
        + cost.pair_s * blocks.pairs
    )
    return np.asarray(np.log(predicted / blocks.seconds))


def _most_at_once(requests: Sequence[MeasuredRequest]) -> int:
    changes = sorted(
        [(one.sent_s, 1) for one in requests] + [(one.end_s, -1) for one in requests], key=lambda item: item
    )
    return int(np.cumsum([change for _, change in changes]).max())


_OVERHEADS = ("step_s", "sequence_s", "prompt_s", "request_s", "matrix_s", "reshape_s")


def _cost(point: NDArray[np.float64]) -> StepCost:
    """A step's cost with the constants as they are: work in seconds, done at a rate of one."""
    values = dict(zip(_GUESSES, np.exp(point).tolist(), strict=True))
    work = replace(
        _NO_WORK,
        dense_ops_per_token=values["token_s"],
        kv_bytes_per_token=values["kv_token_s"],
        attention_ops_per_pair=values["pair_s"],
    )
    overheads = {name: values[name] for name in _OVERHEADS}
    return StepCost(work, replace(_UNIT_RATES, **overheads))


_NO_WORK = ModelWork(
    layers=1,
    hidden=0,
    tp=1,
    dense_ops_per_token=0.0,
    dense_bytes=0.0,
    head_ops_per_row=0.0,
    head_bytes=0.0,
    vocab=0,
    kv_bytes_per_token=0.0,
    window_kv_bytes_per_token=0.0,
    attention_ops_per_pair=0.0,
    window_attention_ops_per_pair=0.0,
)
_UNIT_RATES = Rates(
    linear_ops_s=1.0,
    expert_ops_s=1.0,
    head_ops_s=1.0,
    attention_ops_s=1.0,
    memory_bytes_s=1.0,
    kv_bytes_s=1.0,
    roundness=1.0,
    elementwise_bytes_per_width=0.0,
    logits_bytes_per_entry=0.0,
    reduce_s=0.0,
    reduce_bytes_s=1.0,
    step_s=0.0,
    layer_s=0.0,
    sequence_s=0.0,
)


def _median_size(errors: NDArray[np.float64]) -> float:
    return float(np.median(np.abs(errors))) if len(errors) else 0.0


def _spread(errors: NDArray[np.float64]) -> Spread:
    """Of measured over predicted."""
    ratios = np.exp(-errors) if len(errors) else np.ones(1)
    p10, p50, p90 = (round(float(value), 3) for value in np.quantile(ratios, (0.1, 0.5, 0.9)))
    return Spread(p10=p10, p50=p50, p90=p90, records=len(errors))
