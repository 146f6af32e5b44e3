"""Forecasts: sharing with pictures by hand, budgets, fleets, and the step's cost by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trtbuild.catalog.formats import find_format
from trtbuild.catalog.gpus import find_gpu
from trtbuild.catalog.latency import Spread, latency_constants
from trtbuild.catalog.models import find_model
from trtbuild.errors import PlanError
from trtbuild.plan.architecture import from_record
from trtbuild.plan.latency.budget import (
    Budget,
    best_limits,
    cost_per_million,
    most_rate,
    most_users,
    replicas_for,
)
from trtbuild.plan.latency.cost import StepCost
from trtbuild.plan.latency.forecast import System, forecast, predicted
from trtbuild.plan.latency.load import ClosedLoop, Lengths, Requests, Traffic
from trtbuild.plan.latency.mix import Level, Mix, Offered
from trtbuild.plan.latency.rates import device_rates
from trtbuild.plan.latency.replica import Limits
from trtbuild.plan.latency.sharing import SharedClock, shared_clock
from trtbuild.plan.latency.work import model_work

CONSTANTS = latency_constants()


def cost(model: str = "llama-3.1-8b", quant: str = "fp8", gpu: str = "h100", tp: int = 1) -> StepCost:
    fmt, card = find_format(quant), find_gpu(gpu).gpu
    work = model_work(architecture=from_record(find_model(model)), fmt=fmt, kv_bits=16, tp=tp)
    return StepCost(work, device_rates(gpu=card, fmt=fmt, tp=tp, flow="triton", constants=CONSTANTS))


SYSTEM = System(cost(), Limits(max_batch_size=32, max_num_tokens=2048, kv_tokens=64 * 1024))
MIX = Mix(Lengths(500, 0.3), Lengths(100, 0.3))


def test_work_of_llama_3_1_8b() -> None:
    work = cost().work
    # 32 layers: qkv 4096 × (4096 + 2 × 1024), dense 4096², three of 4096 × 14336
    weights = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
    assert work.dense_ops_per_token == 2 * weights
    assert work.dense_bytes == weights  # one byte each
    assert work.head_bytes == 2 * 4096 * 128256
    assert work.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2  # keys and values, 16 bit
    assert work.attention_ops_per_pair == 4 * 32 * 128 * 32
    assert cost(tp=4).work.dense_ops_per_token == pytest.approx(weights / 2)


def test_a_token_reads_few_experts_and_many_tokens_read_all() -> None:
    mixtral = cost("mixtral-8x7b-instruct-v0.1", "fp8", "h200")
    experts = 32 * 8 * 3 * 4096 * 14336
    assert mixtral.work.expert_bytes == experts
    assert mixtral.work.expert_ops_per_token == 2 * experts * 2 / 8
    read_s = experts / mixtral.rates.memory_bytes_s
    few, many = mixtral.base_s(1.0, 0.0), mixtral.base_s(1000.0, 0.0)
    assert many - few > 0.7 * read_s


def test_a_windowed_layer_reads_no_more_than_its_window() -> None:
    work = model_work(
        architecture=from_record(find_model("gpt-oss-20b")), fmt=find_format("mxfp4"), kv_bits=16
    )
    assert work.window == 128
    assert work.window_kv_bytes_per_token == work.kv_bytes_per_token  # every other layer


def test_scaled_steps_take_as_many_times_as_long() -> None:
    one, twice = cost(), cost().scaled(2.0)
    assert twice.base_s(100.0, 10.0) == pytest.approx(2 * one.base_s(100.0, 10.0))
    assert twice.kv_token_s == pytest.approx(2 * one.kv_token_s)
    assert twice.rates.request_s == one.rates.request_s


def test_a_gpu_without_rates_is_refused() -> None:
    card = find_gpu("h100").gpu.model_copy(update={"mem_bw_gbs": None})
    with pytest.raises(PlanError, match="no latency can be predicted"):
        device_rates(gpu=card, fmt=find_format("fp8"), tp=1, flow="triton", constants=CONSTANTS)


def test_while_a_picture_is_worked_on_the_language_model_runs_at_half_speed() -> None:
    # a picture from 1.0 to 1.2 s
    clock = SharedClock(np.array([0.0, 1.0, 1.2]), np.array([0.0, 1.0, 1.1]), np.array([0.2]))
    assert clock.to_own(np.array([0.5, 1.1, 2.2])) == pytest.approx([0.5, 1.05, 2.1])
    assert clock.to_wall(np.array([0.5, 1.05, 2.1])) == pytest.approx([0.5, 1.1, 2.2])


def test_pictures_take_their_share() -> None:
    clock = shared_clock(pictures_per_s=5, picture_s=0.02, horizon_s=2000, generator=np.random.default_rng(3))
    # busy for 5 × 2 × 20 ms of each second, at half speed
    own = clock.to_own(np.array([2000.0]))[0]
    assert own / 2000 == pytest.approx(1 - 0.5 * 0.2, abs=0.01)
    assert clock.picture_latency_s.min() == pytest.approx(0.04)
    with pytest.raises(PlanError, match="30 pictures a second of 20 ms need more than the half"):
        shared_clock(pictures_per_s=30, picture_s=0.02, horizon_s=10, generator=np.random.default_rng(3))


def test_pictures_slow_the_language_model() -> None:
    alone = forecast(SYSTEM, MIX, Level(rate=10), requests=400)
    mix = replace(MIX, pictures_per_s=10, picture_s=0.04)
    beside = forecast(SYSTEM, mix, Level(rate=10), requests=400)
    assert beside.tpot_s[50].value > 1.2 * alone.tpot_s[50].value
    assert beside.picture_latency_s[50] >= 0.08


def test_error_bars_enclose_the_value() -> None:
    spread = Spread(p10=0.8, p50=1.0, p90=1.3, records=10)
    system = replace(SYSTEM, spreads={"tpot": spread, "ttft": spread})
    found = forecast(system, MIX, Level(users=1), requests=60)
    tpot = found.tpot_s[50]
    assert (tpot.low / tpot.value, tpot.high / tpot.value) == pytest.approx((0.8, 1.3), rel=0.02)
    assert found.ttft_s[95].low < found.ttft_s[95].value < found.ttft_s[95].high
    assert found.tokens_out_per_s.low < found.tokens_out_per_s.value < found.tokens_out_per_s.high


def test_the_level_that_keeps_a_budget_is_the_highest_one() -> None:
    budget = Budget(0.2)
    users = most_users(SYSTEM, MIX, budget, requests=400)
    assert 1 < users < 128
    rate = most_rate(SYSTEM, MIX, budget, requests=400)
    assert forecast(SYSTEM, MIX, Level(rate=rate), requests=400).ttft_s[95].value <= 0.2
    assert forecast(SYSTEM, MIX, Level(rate=rate * 1.1), requests=400).ttft_s[95].value > 0.2


def test_a_budget_that_nothing_meets() -> None:
    assert most_users(SYSTEM, MIX, Budget(0.001), requests=100) == 0
    assert most_rate(SYSTEM, MIX, Budget(0.001), requests=100) == 0.0
    assert best_limits(SYSTEM, MIX, Budget(0.001), most_batch=8, most_tokens=1024, requests=100) is None
    with pytest.raises(PlanError, match="one request alone takes longer"):
        replicas_for(SYSTEM, MIX, 10, Budget(0.001), requests=100)


def test_limits_carry_no_less_than_the_planned_ones() -> None:
    budget = Budget(0.15)
    choice = best_limits(SYSTEM, MIX, budget, most_batch=64, most_tokens=4096, requests=300)
    assert choice is not None
    assert choice.rate >= 0.97 * most_rate(SYSTEM, MIX, budget, requests=300)


def test_replicas_for_a_rate() -> None:
    budget = Budget(0.2)
    alone = most_rate(SYSTEM, MIX, budget, requests=400)
    count = replicas_for(SYSTEM, MIX, 4 * alone, budget, requests=400)
    assert 2 <= count <= 5  # behind one queue, replicas carry at least what each carries alone


def test_more_replicas_than_are_simulated_are_not_counted() -> None:
    with pytest.raises(PlanError, match="need more than the 3 replicas that are simulated"):
        replicas_for(SYSTEM, MIX, 1e9, Budget(0.2), requests=100, most=3)


def test_cost_of_a_million_tokens() -> None:
    # 2 GPUs at 3.60 an hour are 0.002 a second, in which 1,000 tokens are made
    assert cost_per_million(price_per_gpu_hour=3.6, gpus=2, tokens_per_s=1000) == pytest.approx(2.0)


def test_tokens_of_answers_that_are_not_over_count_too() -> None:
    """An answer longer than the run: its rate is one token a step, not none."""
    requests = Requests(isl=[100] * 4, osl=[4000] * 4)
    load = Offered(Traffic(requests, ClosedLoop(1, 0.0, 8.0)), warm_up_s=0.0, end_s=8.0)
    found = predicted(SYSTEM, load, Level(users=1))
    step_s = SYSTEM.cost.base_s(1.0, 1.0) + 1000 * SYSTEM.cost.kv_token_s
    assert found.tokens_out_per_s.value == pytest.approx(1 / step_s, rel=0.05)


def test_a_window_in_which_no_request_begins_is_told() -> None:
    load = Offered(Traffic(Requests(isl=[9], osl=[4000]), ClosedLoop(1, 0.0, 8.0)), warm_up_s=2.0, end_s=8.0)
    with pytest.raises(PlanError, match="no request begins between 2 and 8 s"):
        predicted(SYSTEM, load, Level(users=1))
