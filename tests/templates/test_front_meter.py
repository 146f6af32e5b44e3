"""What a front counts: by class of traffic, as Prometheus reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from tests.support.front_modules import front_module

from trtbuild.doctor.prometheus import Metrics, parse_metrics
from trtbuild.measure.timeline import metric_rows

inputs = front_module("inputs")
meter = front_module("meter")

NONE = ["a b", 'a"b', "a}", "ä", "a\n", "x" * 65, 7, True, 1.5]


def _exported(made: Any) -> Metrics:
    """What Triton's metrics say of a meter's totals."""
    values: dict[str, float] = {}

    class Family:
        COUNTER: ClassVar[int] = 0

        def __init__(self, name: str, description: str, kind: int) -> None:
            assert description
            self._name = name

        def Metric(self, labels: dict[str, str]) -> Any:
            pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
            series = f"{self._name}{{{pairs}}}"
            values[series] = 0.0

            def increment(value: float) -> None:
                values[series] += value

            return SimpleNamespace(increment=increment)

    meter.Exporter(made, SimpleNamespace(MetricFamily=Family), "llm").stop()
    return parse_metrics("\n".join(f"{series} {value}" for series, value in values.items()))


def test_classes_have_totals_of_their_own_and_add_up() -> None:
    made = meter.Meter()
    for name, tokens in ((None, 1), ("interactive", 20), ("offline", 300), ("interactive", 4000)):
        totals = made.of(name)
        totals.output_tokens += tokens
        totals.ttft.add(0.03)
        totals.ended("stop")
    found = _exported(made)
    counted = {
        name: found.value("trtbuild_tokens_total", kind="output", **{"class": name})
        for name in ("default", "interactive", "offline")
    }
    assert counted == {"default": 1, "interactive": 4020, "offline": 300}
    assert found.value("trtbuild_tokens_total", model="llm", kind="output") == 4321
    assert found.value("trtbuild_ttft_seconds_bucket", le="0.05") == made.ended_count == 4
    assert found.value("trtbuild_ttft_seconds_bucket", le="0.025") == 0
    assert ("llm", "tokens_out", 4321.0) in metric_rows(found)  # as a bench records it


def test_series_of_one_name_have_the_same_labels() -> None:
    made = meter.Meter()
    made.of("interactive").ended("length", 1)
    labels: dict[str, set[str]] = {}
    for sample in _exported(made).samples:
        assert labels.setdefault(sample.name, set(sample.labels)) == {*sample.labels}
        assert {"model", "class"} <= set(sample.labels)
    assert labels["trtbuild_requests_total"] == {"model", "class", "reason"}
    assert labels["trtbuild_degraded_requests_total"] == {"model", "class", "step"}


def test_a_front_that_is_told_nothing_has_one_class_and_no_steps() -> None:
    made = meter.Meter()
    for name in (None, ""):
        made.of(name).ended("stop")
    found = _exported(made)
    assert {sample.labels["class"] for sample in found.samples} == {"default"}
    assert found.value("trtbuild_requests_total", reason="stop") == 2
    assert found.value("trtbuild_degraded_requests_total") is None


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_name_counts_as_other(name: object) -> None:
    made = meter.Meter()
    made.of(name).ended("stop")
    assert _exported(made).value("trtbuild_requests_total", **{"class": "other"}) == 1


def test_classes_are_so_many_and_no_more() -> None:
    made = meter.Meter()
    for number in range(1000):
        made.of(f"user-{number}").ended("stop")
    made.of("user-3").ended("stop")
    found = _exported(made)
    classes = {sample.labels["class"] for sample in found.samples}
    assert len(classes - {"other"}) == 16
    assert found.value("trtbuild_requests_total", **{"class": "user-3"}) == 2
    assert found.value("trtbuild_requests_total", **{"class": "other"}) == 985
    assert found.value("trtbuild_requests_total") == 1001


def test_steps_count_by_themselves_and_the_far_ones_together() -> None:
    made = meter.Meter()
    for step in (0, 1, 1, 9, 10, 2**40):
        made.of("batch").ended("stop", step)
    found = _exported(made)
    steps = {sample.labels["step"]: sample.value for sample in found.find("trtbuild_degraded_requests_total")}
    assert steps == {"1": 2, "9": 1, "10+": 2}
    assert found.value("trtbuild_requests_total") == 6


@pytest.mark.parametrize(
    ("sent", "step"), [(None, 0), (2, 2), (0, 0), (-1, 0), (True, 0), ("2", 0), (1.5, 0)]
)
def test_a_step_is_a_whole_number_above_zero(sent: object, step: int) -> None:
    asked = inputs.read_request({}, {"degrade_step": sent, "traffic_class": "x", "other": 5})
    assert (asked.degrade_step, asked.traffic_class) == (step, "x")
