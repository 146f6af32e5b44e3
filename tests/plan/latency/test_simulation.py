"""The simulator against sums that one can do by hand: a step takes 10 ms, a prompt token 1 ms besides."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.errors import PlanError
from trtbuild.plan.latency.cost import Rates, StepCost
from trtbuild.plan.latency.fleet import simulate
from trtbuild.plan.latency.load import (
    ClosedLoop,
    Lengths,
    OpenLoop,
    Requests,
    Traffic,
    all_at_once,
    make_requests,
    poisson,
)
from trtbuild.plan.latency.replica import Limits, Policy
from trtbuild.plan.latency.trace import Trace
from trtbuild.plan.latency.work import ModelWork

_FREE = 1e30  # a rate at which something costs nothing


def cost(
    *,
    token_s: float = 1e-3,
    step_s: float = 10e-3,
    kv_token_s: float = 0.0,
    matrix_s: float = 0.0,
    reshape_s: float = 0.0,
) -> StepCost:
    """Step time = ``step_s`` + ``token_s`` × tokens + ``kv_token_s`` × cached tokens of those that decode.

    ``matrix_s`` comes to steps of several tokens, ``reshape_s`` to those of another number than the last.
    """
    work = ModelWork(
        layers=1,
        hidden=1,
        tp=1,
        dense_ops_per_token=token_s,
        dense_bytes=0.0,
        head_ops_per_row=0.0,
        head_bytes=0.0,
        vocab=1,
        kv_bytes_per_token=kv_token_s,
        window_kv_bytes_per_token=0.0,
        attention_ops_per_pair=0.0,
        window_attention_ops_per_pair=0.0,
    )
    rates = Rates(
        linear_ops_s=1.0,
        expert_ops_s=1.0,
        head_ops_s=1.0,
        attention_ops_s=1.0,
        memory_bytes_s=_FREE,
        kv_bytes_s=1.0,
        roundness=1.0,
        elementwise_bytes_per_width=0.0,
        logits_bytes_per_entry=0.0,
        reduce_s=0.0,
        reduce_bytes_s=_FREE,
        step_s=step_s,
        layer_s=0.0,
        sequence_s=0.0,
        matrix_s=matrix_s,
        reshape_s=reshape_s,
    )
    return StepCost(work, rates)


LIMITS = Limits(max_batch_size=8, max_num_tokens=128, kv_tokens=4096, tokens_per_block=32)


def ttft_s(trace: Trace) -> list[float]:
    return [first - arrived for first, arrived in zip(trace.times.first, trace.times.arrived, strict=True)]


def test_one_request_alone() -> None:
    trace = simulate(all_at_once(Requests([100], [3])), cost=cost(), limits=LIMITS)
    # prompt: 10 + 100 × 1 ms; then two steps of one token: 2 × 11 ms
    assert ttft_s(trace) == pytest.approx([0.110])
    assert trace.times.ended == pytest.approx([0.132])


def test_a_step_of_another_number_of_tokens_takes_longer() -> None:
    price = cost(matrix_s=2e-3, reshape_s=5e-3)
    alone = simulate(all_at_once(Requests([100], [3])), cost=price, limits=LIMITS)
    # 10 + 100 ms, 5 for the new number of tokens, 2 as they are several; a step of one token, another of one
    assert ttft_s(alone) == pytest.approx([0.117])
    assert alone.times.ended == pytest.approx([0.117 + 0.016 + 0.011])
    # two decode together, one goes on alone: 20 + 10 + 7, then 12 + 7, then 11 + 5, then 11
    together = simulate(all_at_once(Requests([10, 10], [2, 4])), cost=price, limits=LIMITS)
    assert together.times.ended == pytest.approx([0.037 + 0.019, 0.037 + 0.019 + 0.016 + 0.011])


def test_a_long_prompt_takes_steps_of_whole_blocks() -> None:
    trace = simulate(all_at_once(Requests([300], [1])), cost=cost(), limits=LIMITS)
    # 128 + 128 + 44 tokens: three steps, 300 tokens
    assert ttft_s(trace) == pytest.approx([3 * 0.010 + 0.300])


def test_decoding_reads_the_cache_of_every_sequence() -> None:
    requests = Requests([10, 10], [3, 3])
    trace = simulate(all_at_once(requests), cost=cost(token_s=0.0, kv_token_s=1e-3), limits=LIMITS)
    # one step for both prompts; then caches of 2 × 10 and 2 × 11 tokens are read
    assert trace.times.ended == pytest.approx([0.010 + (0.010 + 0.020) + (0.010 + 0.022)] * 2)


def test_a_new_prompt_delays_those_that_decode() -> None:
    requests = Requests([10, 50], [4, 1])
    trace = simulate(Traffic(requests, OpenLoop([0.0, 0.025])), cost=cost(), limits=LIMITS)
    # first prompt: to 20 ms. A decoding step to 31 ms, in which the second comes; then 10 + 51 ms for both
    assert trace.times.first == pytest.approx([0.020, 0.092])
    assert trace.times.ended == pytest.approx([0.103, 0.092])


def test_the_batch_limit_queues() -> None:
    limits = Limits(max_batch_size=1, max_num_tokens=128, kv_tokens=4096, tokens_per_block=32)
    trace = simulate(all_at_once(Requests([10, 10], [2, 1])), cost=cost(), limits=limits)
    assert ttft_s(trace) == pytest.approx([0.020, 0.031 + 0.020])


def test_no_evict_reserves_the_whole_answer() -> None:
    # two blocks of 32 each: prompt 20 + limit 44; the pool has three blocks
    limits = Limits(max_batch_size=8, max_num_tokens=128, kv_tokens=96, tokens_per_block=32)
    requests = Requests([20, 20], [2, 2], limits=[44, 44])
    trace = simulate(all_at_once(requests), cost=cost(), limits=limits)
    assert ttft_s(trace) == pytest.approx([0.030, 0.041 + 0.030])
    assert trace.pauses == 0


def test_max_utilization_starts_both_and_pauses_the_later() -> None:
    limits = Limits(
        max_batch_size=8,
        max_num_tokens=128,
        kv_tokens=96,
        tokens_per_block=32,
        policy=Policy.MAX_UTILIZATION,
    )
    requests = Requests([20, 20], [44, 44])
    trace = simulate(all_at_once(requests), cost=cost(), limits=limits)
    assert ttft_s(trace) == pytest.approx([0.050, 0.050])
    assert trace.pauses == 1
    # Both grow to 31 tokens in 11 steps; then only one of them gets its second block.
    both_s = 0.050 + 11 * 0.012
    first_s = both_s + 32 * 0.011
    assert trace.times.ended[0] == pytest.approx(first_s)
    # The other has 12 tokens and computes 20 + 12 anew, which gives the 13th; 31 more.
    assert trace.times.ended[1] == pytest.approx(first_s + 0.010 + 0.032 + 31 * 0.011)


def test_a_prefix_that_is_cached_is_not_computed_again() -> None:
    limits = Limits(max_batch_size=8, max_num_tokens=128, kv_tokens=4096, tokens_per_block=32, reuse=True)
    requests = Requests([100, 100, 100], [1, 1, 1], prefixes=[7, 7, 8], prefix_tokens=[70, 70, 70])
    trace = simulate(Traffic(requests, OpenLoop([0.0, 1.0, 2.0])), cost=cost(), limits=limits)
    # two whole blocks of the first 70 tokens are found
    assert ttft_s(trace) == pytest.approx([0.110, 0.010 + 0.036, 0.110])
    assert trace.reused_tokens == 64


def test_a_prefix_is_lost_when_its_place_is_needed() -> None:
    limits = Limits(max_batch_size=8, max_num_tokens=128, kv_tokens=160, tokens_per_block=32, reuse=True)
    requests = Requests([100, 120, 100], [1, 1, 1], prefixes=[7, -1, 7], prefix_tokens=[70, 0, 70])
    trace = simulate(Traffic(requests, OpenLoop([0.0, 1.0, 2.0])), cost=cost(), limits=limits)
    assert trace.reused_tokens == 0


def test_an_ended_answer_brings_the_next_of_a_closed_loop() -> None:
    trace = simulate(
        Traffic(Requests([10] * 3, [1] * 3), ClosedLoop(1, think_s=0.5)), cost=cost(), limits=LIMITS
    )
    assert trace.times.arrived == pytest.approx([0.0, 0.52, 1.04])


def test_least_connections() -> None:
    requests = Requests([10] * 3, [100, 1, 1])
    trace = simulate(Traffic(requests, OpenLoop([0.0, 0.001, 0.002])), cost=cost(), limits=LIMITS, replicas=3)
    assert ttft_s(trace) == pytest.approx([0.020] * 3)  # each has a replica of its own


def test_what_never_runs_is_refused() -> None:
    with pytest.raises(PlanError, match="the KV pool holds 4096"):
        simulate(all_at_once(Requests([4090], [10])), cost=cost(), limits=LIMITS)
    unchunked = Limits(
        max_batch_size=1, max_num_tokens=128, kv_tokens=4096, tokens_per_block=32, chunked_context=False
    )
    with pytest.raises(PlanError, match="a prompt of 200 tokens never runs"):
        simulate(all_at_once(Requests([200], [10])), cost=cost(), limits=unchunked)
    with pytest.raises(PlanError, match="no requests"):
        simulate(all_at_once(Requests([], [])), cost=cost(), limits=LIMITS)


@st.composite
def _traffic(draw: st.DrawFn) -> Traffic:
    count = draw(st.integers(1, 30))
    lengths = st.lists(st.integers(1, 60), min_size=count, max_size=count)
    isl, osl = draw(lengths), draw(lengths)
    prefixes = draw(st.lists(st.integers(-1, 2), min_size=count, max_size=count))
    tokens = [min(40, length) for length in isl]
    requests = Requests(isl, osl, prefixes=prefixes, prefix_tokens=tokens)
    if draw(st.booleans()):
        return Traffic(
            requests, ClosedLoop(draw(st.integers(1, 12)), think_s=draw(st.sampled_from([0.0, 0.013])))
        )
    gaps = draw(st.lists(st.integers(0, 200), min_size=count, max_size=count))
    return Traffic(requests, OpenLoop(np.cumsum(gaps).astype(float).__mul__(1e-3).tolist()))


_LIMITS = st.builds(
    Limits,
    max_batch_size=st.integers(1, 8),
    max_num_tokens=st.integers(40, 200),
    kv_tokens=st.integers(160, 600),
    tokens_per_block=st.sampled_from([16, 32]),
    chunked_context=st.just(True),
    reuse=st.booleans(),
    policy=st.sampled_from(Policy),
)


@given(traffic=_traffic(), limits=_LIMITS, replicas=st.integers(1, 3))
def test_every_request_gets_its_tokens_and_no_step_is_too_large(
    traffic: Traffic, limits: Limits, replicas: int
) -> None:
    trace = simulate(traffic, cost=cost(kv_token_s=1e-5), limits=limits, replicas=replicas, log=True)
    times = trace.times
    for arrived, started, first, ended in zip(
        times.arrived, times.started, times.first, times.ended, strict=True
    ):
        assert arrived <= started < first <= ended
    assert not any(map(math.isnan, times.ended))
    made = sum(trace.gaps.values())
    again = trace.pauses  # a token after a pause comes from the step that computes the prompt again
    assert made + len(traffic.requests) <= sum(traffic.requests.osl) <= made + len(traffic.requests) + again
    if trace.log is not None:
        table = trace.log.table()
        assert table[:, 0].max() <= limits.max_num_tokens
        assert table[:, 1].max() <= limits.max_batch_size


@given(traffic=_traffic(), limits=_LIMITS, most=st.integers(1, 5))
def test_the_result_does_not_depend_on_how_many_steps_are_taken_at_once(
    traffic: Traffic, limits: Limits, most: int
) -> None:
    price = cost(kv_token_s=1e-5, matrix_s=1e-3, reshape_s=7e-3)
    whole = simulate(traffic, cost=price, limits=limits)
    parts = simulate(traffic, cost=price, limits=limits, max_run=most)
    assert parts.times.first == pytest.approx(whole.times.first, rel=1e-9)
    assert parts.times.ended == pytest.approx(whole.times.ended, rel=1e-9)
    assert parts.pauses == whole.pauses


def test_more_load_never_makes_the_first_token_come_sooner() -> None:
    """Within the noise of 3,000 requests: 5 %."""
    generator = np.random.default_rng(5)
    requests = make_requests(
        count=3000, isl=Lengths(60, 0.5, 400), osl=Lengths(10, 0.5, 100), generator=generator
    )
    found = []
    for rate in (2.0, 4.0, 8.0, 16.0):
        traffic = poisson(requests, rate=rate, generator=np.random.default_rng(7))
        found.append(np.percentile(ttft_s(simulate(traffic, cost=cost(), limits=LIMITS)), [50, 95]))
    for less, more in itertools.pairwise(found):
        assert (more >= less * 0.95).all()
    assert found[-1][1] > found[0][1] * 2
