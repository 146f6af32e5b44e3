"""Answers of a simulated server whose step costs are known, token by token, as a run would have seen them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trtbuild.measure.load.sample import RequestSample
from trtbuild.plan.latency.calibrate import _NO_WORK, _UNIT_RATES
from trtbuild.plan.latency.cost import StepCost
from trtbuild.plan.latency.fleet import simulate
from trtbuild.plan.latency.load import ClosedLoop, Requests, Traffic
from trtbuild.plan.latency.replica import Limits
from trtbuild.plan.latency.steps import MeasuredRequest

LIMITS = Limits(max_batch_size=32, max_num_tokens=2048, kv_tokens=80_000, tokens_per_block=32)
REQUEST_S = 6e-3
TRUTH = StepCost(
    replace(_NO_WORK, dense_ops_per_token=6e-4, kv_bytes_per_token=2e-6, attention_ops_per_pair=3e-7),
    replace(
        _UNIT_RATES,
        step_s=8e-3,
        sequence_s=5e-4,
        prompt_s=3e-3,
        request_s=REQUEST_S,
        matrix_s=1e-3,
        reshape_s=9e-3,
    ),
)


def run(users: int, count: int = 120) -> list[MeasuredRequest]:
    """Users of whom each sends again when the answer is there."""
    generator = np.random.default_rng(users)
    isl = generator.choice([1, 2, 4, 8, 16, 48, 160, 450, 900], count).tolist()
    osl = generator.choice([6, 12, 24, 60], count).tolist()
    traffic = Traffic(Requests(isl, osl), ClosedLoop(users, think_s=REQUEST_S))
    trace = simulate(traffic, cost=TRUTH, limits=LIMITS, log=True, max_run=1)
    assert trace.log is not None
    ends = [*trace.log.begun_s[1:], max(trace.times.ended)]
    found = []
    for number, prompt in enumerate(isl):
        # where the engine came to rest, the next step began later than this one ended
        steps = ends[trace.log.first[number] - 1 : trace.log.ended[number]]
        times = [min(at_s, trace.times.ended[number]) for at_s in steps]
        times[0] = trace.times.first[number]
        arrivals = tuple((at_s, 1) for at_s in times)
        found.append(MeasuredRequest(trace.times.arrived[number] - REQUEST_S, prompt, arrivals))
    return found


def later(requests: Sequence[MeasuredRequest], by_s: float) -> list[MeasuredRequest]:
    """The same, ``by_s`` seconds later."""
    return [
        replace(one, sent_s=one.sent_s + by_s, arrivals=tuple((at + by_s, n) for at, n in one.arrivals))
        for one in requests
    ]


def few_streams() -> list[MeasuredRequest]:
    """One user, then two, three and four."""
    found: list[MeasuredRequest] = []
    for users in (1, 2, 3, 4):
        found += later(run(users), max((one.end_s for one in found), default=0.0) + 1.0)
    return found


def samples(requests: Sequence[MeasuredRequest], model: str) -> list[RequestSample]:
    """As they are kept in a record."""
    return [
        RequestSample(
            number=number, traffic="t", model=model, kind="text", phase="measured", intended_s=one.sent_s,
            sent_s=one.sent_s, first_s=one.first_s, end_s=one.end_s, outcome="ok", prompt_tokens=one.isl,
            output_tokens=len(one.arrivals), arrival_s=[at for at, _ in one.arrivals],
            arrival_tokens=[count for _, count in one.arrivals],
        )
        for number, one in enumerate(requests)
    ]  # fmt: skip
