"""What a run's requests add up to. Every metric has its formula and unit in `METRICS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from trtbuild.measure import stats
from trtbuild.measure.censored import Observed, quantile
from trtbuild.measure.load.sample import RequestSample
from trtbuild.measure.load.spec import Slo
from trtbuild.measure.records.record import Record
from trtbuild.measure.stats import Estimate

MOST_ITL = 200_000  # values that go into the percentiles of ITL


@dataclass(frozen=True)
class Metric:
    """A latency: what it is called, its unit, its formula, and one request's values.

    Attributes:
        values: what is known.
        waited: of a request that failed, what its value is larger than; None where nothing follows.
        of: the kinds of requests that have it.
    """

    name: str
    title: str
    unit: str
    formula: str
    values: Callable[[RequestSample], Iterable[float | None]]
    waited: Callable[[RequestSample], float | None] = lambda one: None
    of: tuple[str, ...] = ("text",)


def _tpot_waited(one: RequestSample) -> float | None:
    """No more tokens than were asked for would have come in the time."""
    if one.first_s is None or one.end_s is None or not one.max_tokens or one.max_tokens < 2:
        return None
    return (one.end_s - one.first_s) / (one.max_tokens - 1)


def _ended_well(one: RequestSample, value: float | None) -> tuple[float | None]:
    return (value if one.outcome == "ok" else None,)


_ANY = ("text", "vision")
LATENCIES = (
    Metric(
        "ttft_s", "TTFT", "s", "first token − intended send time", lambda one: (one.ttft_s,),
        lambda one: one.waited_s if one.first_s is None else None,
    ),
    Metric(
        "tpot_s", "TPOT", "s", "(last token − first token) / (tokens − 1)",
        lambda one: _ended_well(one, one.tpot_s), _tpot_waited,
    ),
    Metric(
        "itl_s", "ITL", "s", "gap before a response / its tokens, each token", lambda one: one.itl_s(),
        lambda one: one.end_s - one.arrival_s[-1] if one.arrival_s and one.end_s is not None else None,
    ),
    Metric(
        "latency_s", "end to end", "s", "end − intended send time",
        lambda one: _ended_well(one, one.latency_s), lambda one: one.waited_s, _ANY,
    ),
    Metric(
        "send_error_s", "send error", "s", "sent − intended send time",
        lambda one: (one.send_error_s,), of=_ANY,
    ),
)  # fmt: skip
LATENCY = next(metric for metric in LATENCIES if metric.name == "latency_s")
RATES = {
    "tokens_out_per_s": ("output tokens", "1/s", "tokens that arrived in the window / its length"),
    "tokens_in_per_s": (
        "input tokens",
        "1/s",
        "prompt tokens of requests that got their first token in the window",
    ),
    "requests_per_s": ("requests", "1/s", "requests that ended well in the window / its length"),
    "goodput_per_s": (
        "goodput",
        "1/s",
        "requests that ended well in the window within the SLO / its length",
    ),
}
SHARES = {
    "error_rate": ("errors", "error"),
    "timeout_rate": ("timeouts", "timeout"),
    "cancel_rate": ("cancelled", "cancelled"),
    "refusal_rate": ("refused", "refused"),
    "unfinished_rate": ("unfinished", "unfinished"),
}


def summarise(record: Record) -> dict[str, Any]:
    """``{"all": group, "traffic": {name: group}, "interactive": group, "offline": group}``.

    A group holds ``requests``, each latency's ``n``, ``cut`` (how many of these failed, and count as longer
    than waited for), ``mean``, ``p50`` … ``p99``, each rate and share, all as ``{value, low, high}``, with
    ``at_least: true`` where the true value is larger. Groups that would say the same as ``all`` are left out.
    """
    slo = Slo.model_validate(record.load.get("slo", {}))
    classes = {
        traffic["name"]: bool(traffic.get("interactive", True))
        for flow in record.load.get("flows", ())
        for traffic in flow["traffic"]
    }

    def group(keep: Callable[[RequestSample], bool]) -> dict[str, Any]:
        return _group([one for one in record.requests if keep(one)], record.window_s, slo)

    found: dict[str, Any] = {"all": group(lambda one: True)}
    if len(classes) > 1:
        found["traffic"] = {name: group(lambda one, name=name: one.traffic == name) for name in classes}  # type: ignore[misc]
    if len(set(classes.values())) > 1:
        found["interactive"] = group(lambda one: classes.get(one.traffic, True))
        found["offline"] = group(lambda one: not classes.get(one.traffic, True))
    found["server"] = server_side(record)
    return found


def _group(requests: Sequence[RequestSample], window_s: tuple[float, float], slo: Slo) -> dict[str, Any]:
    begin_s, end_s = window_s
    counted = [one for one in requests if one.phase == "measured" and begin_s <= one.intended_s < end_s]
    counted.sort(key=lambda one: one.intended_s)
    well = [one for one in counted if one.outcome == "ok"]
    found: dict[str, Any] = {"requests": len(counted), "ok": len(well)}
    for metric in LATENCIES:
        if any(one.kind in metric.of for one in counted):
            found[metric.name] = _latency(observed(metric, counted))
    found |= _rates(requests, window_s, slo)
    took = observed(LATENCY, counted)
    if len(took) and (usual_s := quantile(took, 0.5).value) > end_s - begin_s:
        why = f"window too short: {end_s - begin_s:.1f} s, and half the requests take {usual_s:.1f} s or more"
        found |= {name: Estimate(found[name]["value"], why=why).as_json() for name in RATES if name in found}
    for name, (_, outcome) in SHARES.items():
        found[name] = stats.share(sum(one.outcome == outcome for one in counted), len(counted)).as_json()
    found["degrade_rate"] = stats.share(sum(one.degrade_step > 0 for one in counted), len(counted)).as_json()
    return found


def observed(metric: Metric, requests: Iterable[RequestSample]) -> Observed:
    """A metric's values over requests, in their order; at most `MOST_ITL` of them.

    Those that failed are in it with what was waited for, see `censored`.
    """
    pairs = list(islice(_observed(metric, requests), MOST_ITL))
    return Observed(np.array([value for value, _ in pairs], float), np.array([cut for _, cut in pairs], bool))


def _observed(metric: Metric, requests: Iterable[RequestSample]) -> Iterator[tuple[float, bool]]:
    for one in requests:
        if one.kind not in metric.of:
            continue
        for value in metric.values(one):
            if value is not None:
                yield value, False
        waited = None if one.outcome == "ok" else metric.waited(one)
        if waited is not None:
            yield waited, True


def _latency(data: Observed) -> dict[str, Any]:
    found: dict[str, Any] = {"n": len(data), "cut": data.cuts, "mean": stats.mean(data).as_json()}
    for share in stats.QUANTILES:
        found[f"p{100 * share:g}"] = stats.percentile(data, share).as_json()
    return found


def _rates(requests: Sequence[RequestSample], window_s: tuple[float, float], slo: Slo) -> dict[str, Any]:
    begin_s, end_s = window_s
    ended = [one for one in requests if one.outcome == "ok" and one.end_s and begin_s <= one.end_s < end_s]
    begun = [one for one in requests if one.first_s and begin_s <= one.first_s < end_s and one.prompt_tokens]
    tokens = list(_tokens(requests, window_s))
    found: dict[str, Estimate] = {
        "tokens_out_per_s": stats.rate([at for at, _ in tokens], [n for _, n in tokens], window_s),
        "tokens_in_per_s": stats.rate(
            [one.first_s or 0.0 for one in begun], [one.prompt_tokens or 0 for one in begun], window_s
        ),
        "requests_per_s": stats.rate([one.end_s or 0.0 for one in ended], [1] * len(ended), window_s),
    }
    if slo != Slo():
        good = [one for one in ended if meets(one, slo)]
        found["goodput_per_s"] = stats.rate([one.end_s or 0.0 for one in good], [1] * len(good), window_s)
    return {name: estimate.as_json() for name, estimate in found.items()}


def rate_of(record: Record, model: str, name: str) -> float:
    """One of `RATES` of one model's requests, 1/s; 0 where nothing came."""
    found = _rates([one for one in record.requests if one.model == model], record.window_s, Slo())
    return float(found[name]["value"] or 0.0)


def _tokens(requests: Iterable[RequestSample], window_s: tuple[float, float]) -> Iterator[tuple[float, int]]:
    for one in requests:
        for at_s, count in zip(one.arrival_s, one.arrival_tokens, strict=True):
            if window_s[0] <= at_s < window_s[1]:
                yield at_s, count


def meets(one: RequestSample, slo: Slo) -> bool:
    """Whether a request that ended well kept every limit that applies to it."""
    limits = ((slo.ttft_s, one.ttft_s), (slo.tpot_s, one.tpot_s)) if one.kind == "text" else ()
    return all(
        limit is None or value is None or value <= limit
        for limit, value in (*limits, (slo.latency_s, one.latency_s))
    )


def rate_value(record: Record, name: str) -> float | None:
    """One of `RATES` of all requests, 1/s; None where the window does not carry it."""
    data = record.metrics.get("all", {}).get(name) or {}
    return None if data.get("why") else data.get("value")


def send_error_text(own: dict[str, float], group: dict[str, Any]) -> str:
    """How late the generator sent: P99, or the most where there are too few requests for it."""
    p99 = ((group.get("send_error_s") or {}).get("p99") or {}).get("value")
    if p99 is not None:
        return f"send-time error P99 {1e3 * p99:.1f} ms"
    if "send_error_max_s" not in own:
        return ""
    return f"send-time error at most {1e3 * own['send_error_max_s']:.1f} ms"


def server_side(record: Record) -> dict[str, Any]:
    """What the timeline says of each model inside the window.

    ``queue_wait_s``: Triton's queue, Δ queue_us / Δ requests. ``engine_wait_s``: waiting for a place in the
    engine's batch, by Little's law mean waiting / requests a second. ``batch``: Δ inferences / Δ executions,
    of models that execute batches. ``*_mean`` and ``*_max`` of the gauges.
    """
    begin_s, end_s = record.window_s
    series: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for t_s, model, name, value in record.timeline:
        if begin_s <= t_s < end_s:
            series.setdefault((model, name), []).append((t_s, value))
    found: dict[str, dict[str, float]] = {}
    for (model, name), points in series.items():
        values = [value for _, value in points]
        row = found.setdefault(model, {})
        if name in _COUNTERS:
            row[name] = values[-1] - values[0]
        else:
            row[f"{name}_mean"], row[f"{name}_max"] = sum(values) / len(values), max(values)
    for row in found.values():
        _derive(row, end_s - begin_s)
    return {model or "server": row for model, row in found.items()}


_COUNTERS = frozenset(
    [
        *("iteration", "success", "failure", "queue_us", "compute_us", "executions", "inferences"),
        *("tokens_in", "tokens_out", "kv_reused"),
    ]
)


def _derive(row: dict[str, float], length_s: float) -> None:
    done = row.get("success", 0.0)
    if done > 0:
        row["queue_wait_s"] = row.get("queue_us", 0.0) / done / 1e6
        if "waiting_mean" in row:
            row["engine_wait_s"] = row["waiting_mean"] * length_s / done
    if row.get("executions"):
        row["batch"] = row.get("inferences", 0.0) / row["executions"]
    if row.get("kv_max_max"):
        row["kv_share_max"] = row.get("kv_used_max", 0.0) / row["kv_max_max"]
        row["kv_share_mean"] = row.get("kv_used_mean", 0.0) / row["kv_max_max"]
