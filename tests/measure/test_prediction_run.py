"""``scripts/prove-prediction``: loads are as long as percentiles need; a figure has requests enough."""

from __future__ import annotations

import pytest

from trtbuild.catalog.formats import find_format
from trtbuild.catalog.gpus import find_gpu
from trtbuild.catalog.latency import latency_constants
from trtbuild.catalog.models import find_model
from trtbuild.measure.load.spec import Closed, Poisson
from trtbuild.measure.prediction_run import (
    LEAST_S,
    TRAFFIC,
    WANTED,
    WARMUP_S,
    Measured,
    Verdict,
    figures_of,
    loads,
    predict,
)
from trtbuild.measure.records.record import Record
from trtbuild.plan.architecture import from_record
from trtbuild.plan.latency.cost import StepCost
from trtbuild.plan.latency.forecast import System
from trtbuild.plan.latency.rates import device_rates
from trtbuild.plan.latency.replica import Limits
from trtbuild.plan.latency.work import model_work


def system(slowness: float) -> System:
    fmt = find_format("fp8")
    rates = device_rates(
        gpu=find_gpu("h100").gpu, fmt=fmt, tp=1, flow="triton", constants=latency_constants()
    )
    work = model_work(architecture=from_record(find_model("llama-3.1-8b")), fmt=fmt, kv_bits=16)
    limits = Limits(max_batch_size=32, max_num_tokens=2048, kv_tokens=1 << 16)
    return System(StepCost(work, rates).scaled(slowness), limits)


LOAD = loads(system(1.0), "llm", users=[8], rate=1.0, traffic=TRAFFIC, seed=1)["8 users"]


def test_a_slow_system_is_loaded_until_there_are_requests_for_a_p95() -> None:
    quick = loads(system(1.0), "llm", users=[1, 8], rate=None, traffic=TRAFFIC, seed=1)
    slow = loads(system(100.0), "llm", users=[1, 8], rate=0.5, traffic=TRAFFIC, seed=1)
    assert quick["8 users"].duration_s == WARMUP_S + LEAST_S
    # 100 times 5 ms a token and 20.6 tokens: 0.1 requests a second, 90 of which take 900 s
    assert 600 < slow["1 users"].duration_s < 1400
    assert slow["0.5 a second"].duration_s == WARMUP_S + WANTED / 0.5
    assert slow["8 users"].flows[0].shape == Closed(users=8)
    (rate,) = [load.flows[0].shape for load in quick.values() if isinstance(load.flows[0].shape, Poisson)]
    assert rate.rate_per_s > 1


def test_a_figure_without_requests_enough_is_left_out() -> None:
    def found(*p95: float | None) -> dict[str, Verdict]:
        runs = tuple(figures_of(run(value)) for value in p95)
        measured = Measured(LOAD, runs, (1.0, 1.0))
        return {row.figure: row for row in measured.verdicts("8 users", system(1.0), predictions)}

    def run(p95: float | None) -> Record:
        parts = {"p50": {"value": 0.1}, "p95": {"value": p95}}
        group = {"ttft_s": parts, "tpot_s": parts, "tokens_out_per_s": {"value": 50.0}}
        return Record(load={}, metrics={"all": group})

    predictions = {"TTFT P50 ms": 110.0, "TTFT P95 ms": 300.0, "tokens/s": 70.0}
    rows = found(None, None)
    assert list(rows) == ["TTFT P50 ms", "tokens/s"]
    assert rows["TTFT P50 ms"].kept  # 10 % off
    assert not rows["tokens/s"].kept  # 40 %
    assert found(0.3, None)["TTFT P95 ms"].measured == (300.0,)


def test_what_a_slow_machine_adds_is_told_apart_from_the_models_error() -> None:
    calibrated = system(1.0)
    predictions = predict(calibrated, LOAD)
    slow = predict(system(1.25), LOAD)
    rows = list(Measured(LOAD, (slow, slow), (1.25, 1.25)).verdicts("8 users", calibrated, predictions))
    assert all(row.error_at_speed == pytest.approx(0) for row in rows)
    tpot = next(row for row in rows if row.figure == "TPOT P50 ms")
    assert tpot.error == pytest.approx(1 / 1.25 - 1, abs=0.02)
