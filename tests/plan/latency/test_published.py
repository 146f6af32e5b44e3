"""The latency model against published figures, and how these are divided into fitted and judged ones."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from trtbuild.catalog.formats import find_format
from trtbuild.catalog.gpus import find_gpu
from trtbuild.catalog.latency import arithmetic, latency_constants
from trtbuild.plan.latency.cases import Case, Timing, make_case
from trtbuild.plan.latency.judge import by_kind, cases_of, errors
from trtbuild.plan.latency.records import SpeedRecord, folds, halves, read_speed_records

RECORDS = Path(__file__).parent.parent / "data" / "speed_records.csv"


@lru_cache(maxsize=1)
def judged_records() -> tuple[SpeedRecord, ...]:
    return tuple(record for record in read_speed_records(RECORDS) if record.judged)


def record(record_id: str) -> SpeedRecord:
    return next(record for record in judged_records() if record.id == record_id)


def test_halves_divide_groups_and_every_source() -> None:
    ours, theirs = halves(judged_records())
    assert len(ours) + len(theirs) == len(judged_records()) == 1070
    assert not {one.group for one in ours} & {one.group for one in theirs}
    assert {one.group.split(":")[0] for one in ours} >= {"trt-ifb", "trt-static", "trt-triton", "aic"}
    assert {one.group.split(":")[0] for one in theirs} >= {"trt-ifb", "trt-static", "trt-triton", "aic"}


def test_folds_divide_groups() -> None:
    parts = folds(judged_records(), 4)
    groups = [{one.group for one in part} for part in parts]
    assert sum(map(len, groups)) == len({one.group for one in judged_records()})


@pytest.mark.parametrize(
    ("record_id", "kind"),
    [
        ("trt-static-0009", "throughput"),  # 64 prompts at once
        ("trt-triton-0069", "throughput"),  # timed arrivals
        ("trt-triton-0067", "ttft"),
        ("aic-0027", "ttft"),  # four users
        ("trt-triton-0068", "tpot"),
    ],
)
def test_runs_timed_anew_are_what_the_simulation_says(record_id: str, kind: str) -> None:
    constants = latency_constants()
    case = make_case(record(record_id))
    assert isinstance(case, Case)
    trace = case.simulate(constants)
    times, requests = trace.times, case.traffic.requests
    first, ended = np.array(times.first), np.array(times.ended)
    expected = {
        "throughput": sum(requests.osl) / (ended.max() - min(times.arrived)),
        "ttft": (first - times.arrived).mean() + case.cost(constants).rates.request_s,
        "tpot": (ended - first).sum() / (np.array(requests.osl) - 1).sum(),
    }[kind]
    assert Timing(case, constants).predict(constants) == pytest.approx(expected, rel=1e-6)


def test_what_cannot_be_predicted_is_said() -> None:
    assert make_case(record("trt-ifb-0857")) == "no shape of llama-4-scout is in the catalogue"
    assert "RTX-4070-Laptop" in str(make_case(record("jan-0005")))


@pytest.mark.parametrize(
    ("quant", "gpu", "expected"),
    [
        ("awq", "l4", "w4a16"),
        ("fp8", "a100-80g", "w8a16"),  # weights alone: the chip multiplies no FP8
        ("fp8", "l4", "fp8"),
        ("nvfp4", "b200", "fp4"),
        ("mxfp4", "h100", "w4a16"),
        ("int8-sq", "a100-80g", "int8"),
        ("bf16", "h100", "fp16"),
    ],
)
def test_arithmetic(quant: str, gpu: str, expected: str) -> None:
    assert arithmetic(find_format(quant), find_gpu(gpu).gpu) == expected


@pytest.mark.slow
def test_judged_half() -> None:
    """Medians of the errors' sizes under 20 %, kinds apart, on groups that nothing was fitted on."""
    _, theirs = halves(judged_records())
    found = by_kind(errors(cases_of(theirs)[0], latency_constants()))
    assert [kind.name for kind in found] == ["throughput", "ttft", "tpot"]
    for kind in found:
        assert kind.median < 0.20, kind.row()
