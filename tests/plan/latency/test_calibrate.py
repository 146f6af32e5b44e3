"""Calibration: a run of a server whose step costs are known gives those costs back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trtbuild.errors import PlanError
from trtbuild.plan.latency.calibrate import _NO_WORK, _UNIT_RATES, MeasuredRequest, calibrate
from trtbuild.plan.latency.cost import StepCost
from trtbuild.plan.latency.fleet import simulate
from trtbuild.plan.latency.load import ClosedLoop, OpenLoop, Requests, Traffic
from trtbuild.plan.latency.replica import Limits

LIMITS = Limits(
    max_batch_size=32, max_num_tokens=2048, kv_tokens=80_000, tokens_per_block=32, takes_late=True
)
TRUTH = StepCost(
    replace(_NO_WORK, dense_ops_per_token=6e-4, kv_bytes_per_token=2e-6, attention_ops_per_pair=3e-7),
    replace(_UNIT_RATES, step_s=8e-3, sequence_s=5e-4, wide_s=9e-3, vector_token_s=3e-3, request_s=6e-3),
)


def run(users: int, count: int = 120) -> list[MeasuredRequest]:
    generator = np.random.default_rng(users)
    isl = generator.choice([1, 2, 4, 8, 16, 48, 160, 450, 900], count).tolist()
    osl = generator.choice([6, 12, 24, 60], count).tolist()
    traffic = Traffic(Requests(isl, osl), ClosedLoop(users, think_s=0.006))
    times = simulate(traffic, cost=TRUTH, limits=LIMITS).times
    columns = zip(times.arrived, times.first, times.ended, isl, osl, strict=True)
    return [
        MeasuredRequest(
            arrived - 6e-3, prompt, answer, first - arrived + 6e-3, (ended - first) / (answer - 1)
        )
        for arrived, first, ended, prompt, answer in columns
    ]


def test_few_streams_tell_what_many_will_see() -> None:
    measured: list[MeasuredRequest] = []
    for users in (1, 2, 3, 4):
        begin_s = max((one.end_s for one in measured), default=0.0) + 1.0
        measured += [replace(one, sent_s=one.sent_s + begin_s) for one in run(users)]
    found = calibrate(measured)
    assert found.most_at_once <= 5
    assert found.errors["ttft"] < 0.1
    assert found.errors["tpot"] < 0.1
    for batch in (1.0, 4.0, 16.0, 32.0):
        assert found.cost.base_s(batch, batch) == pytest.approx(TRUTH.base_s(batch, batch), rel=0.15)
    assert found.cost.base_s(800.0, 1.0) == pytest.approx(TRUTH.base_s(800.0, 1.0), rel=0.15)


def test_runs_that_tell_nothing_are_refused() -> None:
    with pytest.raises(PlanError, match="10 answers with token counts"):
        calibrate(run(1, 10))
    alike = [replace(one, isl=100) for one in run(1, 60)]
    with pytest.raises(PlanError, match="all prompts of the run have 100 to 100 tokens"):
        calibrate(alike)


def test_a_late_request_is_in_the_step_after_the_next() -> None:
    cost = StepCost(replace(_NO_WORK, dense_ops_per_token=0.0), replace(_UNIT_RATES, step_s=0.01))
    traffic = Traffic(Requests([10, 10], [10, 1]), OpenLoop([0.0, 0.015]))
    late = simulate(traffic, cost=cost, limits=LIMITS).times
    assert late.first == pytest.approx([0.01, 0.04])
    early = simulate(traffic, cost=cost, limits=replace(LIMITS, takes_late=False)).times
    assert early.first == pytest.approx([0.01, 0.03])
