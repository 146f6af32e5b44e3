"""The cost of a step from one measured run, such as on a machine of which no published figure exists.

Steps are not seen from outside, but each answer says how long as many steps took as it has tokens, and the
other answers say what else was in these steps. The constants are those with which the steps' times add up to
the measured ones (robust least squares on logarithms); the simulator then predicts other loads with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trtbuild.catalog.latency import Spread
from trtbuild.errors import PlanError
from trtbuild.plan.latency.cost import Rates, StepCost
from trtbuild.plan.latency.work import ModelWork

LEAST_REQUESTS = 50
LATE_STEPS = 1  # the CPU engine takes a request into the step after the next
_TYPICAL_ERROR = 0.1
_GUESS_SPREAD = 2.0  # logarithms: guesses are of the order of magnitude alone


@dataclass(frozen=True)
class MeasuredRequest:
    """One answered request: when it was sent, its tokens, and what was seen of it. Times in seconds."""

    sent_s: float
    isl: int
    osl: int
    ttft_s: float
    tpot_s: float | None  # None: a single token

    @property
    def end_s(self) -> float:
        """When the last token came."""
        return self.sent_s + self.ttft_s + (self.tpot_s or 0.0) * (self.osl - 1)


@dataclass(frozen=True)
class Calibration:
    """What a run gave: the cost of a step, and how far simulated times lie from measured ones.

    ``errors`` are median sizes of the relative errors of TTFT and TPOT on the run itself.
    """

    cost: StepCost
    spreads: dict[str, Spread]
    errors: dict[str, float]
    requests: int
    most_at_once: int


# What one step costs: seconds each, but for the roundness. The guess is of a small model on a CPU.
_GUESSES = {
    "token_s": 5e-4,  # arithmetic of a token in products of matrices
    "vector_token_s": 2e-3,  # of a decoding sequence's, while there are few
    "wide_s": 5e-3,  # what products of matrices cost beyond those with vectors
    "joint_s": 5e-3,  # a step in which prompts and decoding sequences meet
    "step_s": 5e-3,
    "sequence_s": 5e-4,  # sampling, response, transport and client, for each token that is given out
    "kv_token_s": 1e-6,  # for each cached token that decoding reads
    "pair_s": 1e-7,  # for each pair of a prompt's token and one before it
    "request_s": 5e-3,  # outside of any step
    "second_s": 5e-3,  # by which an answer's second token comes late: seen, and not part of a step
}
# Seen from few streams, what a sequence costs hides behind what else a step costs: it stays near the guess.
_SPREADS = {"sequence_s": 0.3}


def calibrate(requests: Sequence[MeasuredRequest]) -> Calibration:
    """The step's cost with which the simulator meets a run.

    Raises:
        PlanError: too few requests, or all of one length, from which no constants follow.
    """
    ordered = sorted(requests, key=lambda one: one.sent_s)
    _refuse_what_tells_nothing(ordered)
    observed = _Observed(ordered)
    names = list(_GUESSES)
    centre = np.log(list(_GUESSES.values()))
    low, high = centre - 8.0, centre + 8.0
    spread = np.array([_SPREADS.get(name, _GUESS_SPREAD) for name in names])
    from scipy.optimize import least_squares

    def residuals(point: NDArray[np.float64]) -> NDArray[np.float64]:
        first, decode = observed.errors(_cost(point), _second_s(point))
        return np.concatenate([first / _TYPICAL_ERROR, decode / _TYPICAL_ERROR, (point - centre) / spread])

    solution = least_squares(residuals, centre, bounds=(low, high), loss="soft_l1", max_nfev=200)
    cost = _cost(solution.x)
    first, decode = observed.errors(cost, _second_s(solution.x))
    return Calibration(
        cost=cost,
        spreads={"ttft": _spread(first), "tpot": _spread(decode)},
        errors={"ttft": float(np.median(np.abs(first))), "tpot": float(np.median(np.abs(decode)))},
        requests=len(ordered),
        most_at_once=_most_at_once(ordered),
    )


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


class _Observed:
    """What a run says about steps, as arrays over its requests.

    Between a request's first and last token there was one step for each of its other tokens. Those in
    which somebody's prompt ended are known by their moment and their tokens; the others only decoded, with
    as many sequences on average as tokens were given out. A first token took the rest of the step in which
    the request came, the steps that it missed, and its prompt's.
    """

    def __init__(self, requests: Sequence[MeasuredRequest]) -> None:
        first = np.array([one.sent_s + one.ttft_s for one in requests])
        last = np.array([one.end_s for one in requests])
        sent = np.array([one.sent_s for one in requests])
        isl = np.array([float(one.isl) for one in requests])
        osl = np.array([float(one.osl) for one in requests])
        steps = osl - 1
        rate = np.divide(steps, last - first, out=np.zeros_like(steps), where=last > first)
        decoding = (first[None, :] > first[:, None]) & (
            first[None, :] <= last[:, None]
        )  # [one, prompt's end]
        self.beside = decoding.sum(0).astype(float)  # sequences that decode while a prompt ends
        cached = isl + steps / 2
        self.beside_kv = cached @ decoding
        several = steps > 0
        overlap = np.clip(
            np.minimum(last[:, None], last[None, :]) - np.maximum(first[:, None], first[None, :]), 0.0, None
        )
        given = overlap * rate[None, :]  # [interval, sequence]: tokens that it gave out meanwhile
        self.batch = np.ones_like(steps)
        self.kv = cached.copy()
        self.batch[several] = np.maximum(1.0, given.sum(1)[several] / steps[several])
        self.kv[several] = (given @ cached)[several] / steps[several]
        self.inside = decoding[several].astype(float)  # [interval, prompt]
        self.several = several
        self.isl, self.steps = isl, steps
        self.ttft = first - sent
        self.decode = (last - first)[several]
        waits = (sent[None, :] < sent[:, None]) & (first[None, :] > sent[:, None])
        # who came while another's prompt was computed waited for that, or shared its step: not clear which
        self.clear = ~waits.any(1) & ~waits.any(0)
        self.among = ((first[None, :] < sent[:, None]) & (last[None, :] > sent[:, None])).sum(1).astype(float)

    def errors(self, cost: StepCost, second_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Logarithms of predicted over measured: clear first tokens, and times from first to last."""
        prompt = (
            cost.base_s(self.isl + self.beside, 1.0 + self.beside)
            + cost.pair_s * self.isl**2 / 2
            + cost.kv_token_s * self.beside_kv
        )
        step = cost.base_s(self.batch, self.batch) + cost.kv_token_s * self.kv
        rest = np.where(self.among > 0, (0.5 + LATE_STEPS) * step, 0.0)
        ttft = cost.rates.request_s + rest + prompt
        plain = np.maximum(0.0, self.steps[self.several] - self.inside.sum(1))
        decode = self.inside @ prompt + plain * step[self.several] + second_s
        return np.log(ttft / self.ttft)[self.clear], np.log(decode / self.decode)


def _most_at_once(requests: Sequence[MeasuredRequest]) -> int:
    changes = sorted(
        [(one.sent_s, 1) for one in requests] + [(one.end_s, -1) for one in requests], key=lambda item: item
    )
    return int(np.cumsum([change for _, change in changes]).max())


def _second_s(point: NDArray[np.float64]) -> float:
    return float(np.exp(point[list(_GUESSES).index("second_s")]))


def _cost(point: NDArray[np.float64]) -> StepCost:
    """A step's cost with the constants as they are: work in seconds, done at a rate of one."""
    values = dict(zip(_GUESSES, np.exp(point).tolist(), strict=True))
    work = replace(
        _NO_WORK,
        dense_ops_per_token=values["token_s"],
        kv_bytes_per_token=values["kv_token_s"],
        attention_ops_per_pair=values["pair_s"],
    )
    rates = replace(
        _UNIT_RATES,
        step_s=values["step_s"],
        sequence_s=values["sequence_s"],
        request_s=values["request_s"],
        wide_s=values["wide_s"],
        vector_token_s=values["vector_token_s"],
        joint_s=values["joint_s"],
    )
    return StepCost(work, rates)


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


def _spread(errors: NDArray[np.float64]) -> Spread:
    p10, p50, p90 = (round(float(value), 3) for value in np.quantile(np.exp(-errors), (0.1, 0.5, 0.9)))
    return Spread(p10=p10, p50=p50, p90=p90, records=len(errors))
