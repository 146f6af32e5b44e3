"""Calibration: a run of a server whose step costs are known gives those costs back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.simulated_run import REQUEST_S, TRUTH, few_streams, run

from trtbuild.errors import PlanError
from trtbuild.plan.latency.calibrate import calibrate, slowness
from trtbuild.plan.latency.steps import MeasuredRequest, steps_of


@pytest.fixture(scope="module")
def measured() -> list[MeasuredRequest]:
    return few_streams()


def test_few_streams_tell_what_many_will_see(measured: list[MeasuredRequest]) -> None:
    found = calibrate(measured)
    assert found.most_at_once <= 5
    assert found.errors["ttft"] < 0.05
    assert found.errors["tpot"] < 0.05
    for batch in (1.0, 4.0, 16.0, 32.0):
        assert found.cost.base_s(batch, batch) == pytest.approx(TRUTH.base_s(batch, batch), rel=0.1)
    assert found.cost.base_s(800.0, 1.0) == pytest.approx(TRUTH.base_s(800.0, 1.0), rel=0.1)
    assert found.cost.rates.reshape_s == pytest.approx(TRUTH.rates.reshape_s, rel=0.1)
    outside = found.cost.rates.request_s + found.cost.rates.prompt_s
    assert outside == pytest.approx(REQUEST_S + TRUTH.rates.prompt_s, rel=0.2)


def test_tokens_that_come_late_do_not_matter_and_show_how_first_ones_scatter(
    measured: list[MeasuredRequest],
) -> None:
    chance = np.random.default_rng(7)

    def delayed(one: MeasuredRequest) -> MeasuredRequest:
        # no token comes before the one ahead of it, none after the end: the next request comes then
        times = np.maximum.accumulate([at + chance.exponential(0.004) for at, _ in one.arrivals])
        return replace(one, arrivals=tuple((min(float(at), one.end_s), 1) for at in times))

    found = calibrate([delayed(one) for one in measured])
    for batch in (1.0, 4.0, 32.0):
        assert found.cost.base_s(batch, batch) == pytest.approx(TRUTH.base_s(batch, batch), rel=0.15)
    assert found.scatter == tuple(sorted(found.scatter))
    assert found.scatter[-1] - found.scatter[0] > 0.1  # 4 ms of some 30


def test_a_slower_machine_shows_in_the_steps_of_any_load(measured: list[MeasuredRequest]) -> None:
    def slower(one: MeasuredRequest) -> MeasuredRequest:
        return MeasuredRequest(
            1.25 * one.sent_s, one.isl, tuple((1.25 * at_s, count) for at_s, count in one.arrivals)
        )

    cost = calibrate(measured).cost
    assert slowness(measured, cost, max_num_tokens=1 << 30) == pytest.approx(1, abs=0.02)
    assert slowness([*map(slower, measured)], cost, max_num_tokens=1 << 30) == pytest.approx(1.25, abs=0.03)
    with pytest.raises(PlanError, match="no two steps"):
        slowness([MeasuredRequest(0.0, 10, ((1.0, 3),))], cost, max_num_tokens=1 << 30)


def test_what_ran_beside_something_else_is_left_out(measured: list[MeasuredRequest]) -> None:
    """The first half of the run at half speed, and known to be disturbed."""
    middle_s = measured[len(measured) // 2].sent_s

    def slow(one: MeasuredRequest) -> MeasuredRequest:
        if one.sent_s >= middle_s:
            return replace(
                one, sent_s=one.sent_s + middle_s,
                arrivals=tuple((at + middle_s, n) for at, n in one.arrivals),
            )  # fmt: skip
        return replace(one, sent_s=2 * one.sent_s, arrivals=tuple((2 * at, n) for at, n in one.arrivals))

    slowed = [slow(one) for one in measured]
    found = calibrate(slowed, disturbed_s=[(0.0, 2 * middle_s + 2.0)])
    assert found.cost.base_s(16.0, 16.0) == pytest.approx(TRUTH.base_s(16.0, 16.0), rel=0.1)
    believed = calibrate(slowed)
    assert believed.cost.base_s(16.0, 16.0) > 1.1 * TRUTH.base_s(16.0, 16.0)


def test_runs_that_tell_nothing_are_refused() -> None:
    with pytest.raises(PlanError, match="10 answers with token counts"):
        calibrate(run(1, 10))
    alike = [replace(one, isl=100) for one in run(1, 60)]
    with pytest.raises(PlanError, match="all prompts of the run have 100 to 100 tokens"):
        calibrate(alike)


def test_two_answers_side_by_side_show_their_steps() -> None:
    # the second comes while the first decodes; its prompt's step takes 50 ms, the others 10 ms
    first = MeasuredRequest(0.0, 100, tuple((at, 1) for at in (0.1, 0.11, 0.12, 0.17, 0.18, 0.19)))
    second = MeasuredRequest(0.115, 40, ((0.171, 1), (0.181, 1), (0.192, 1), (0.2, 2)))
    steps = steps_of([first, second], max_num_tokens=2048)
    assert [step.decoding for step in steps] == [0, 1, 1, 1, 2, 2, 1, 1]
    assert [step.prompts for step in steps if step.prompts] == [(100,), (40,)]
    assert steps[3].end_s - steps[2].end_s == pytest.approx(0.05)
    assert steps[3].tokens == 41
    assert steps[3].rows == 2
    # 102 tokens of the first are in the cache when its fourth is made, 41 of the second when its third is
    assert steps[3].kv_tokens == 102
    assert steps[5].kv_tokens == 104 + 41
    assert all(step.clear for step in steps)
    # a prompt that took several steps: which of its tokens were in which is not known
    chunked = steps_of([first, second], max_num_tokens=30)
    assert [step.clear for step in chunked] == [False, True, False, False, True, True, True, True]
