"""Puts a report's page together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trtbuild.measure.metrics import LATENCIES, RATES, SHARES, rate_value, send_error_text
from trtbuild.measure.records.record import Record
from trtbuild.measure.report import plots
from trtbuild.measure.report.svg import styled

ALL = "all requests"
_PARTS = ("p50", "p90", "p95", "p99")


def report_page(records: Sequence[Record], *, title: str, budget_s: float | None = None) -> str:
    """One self-contained HTML page about one run, or several that belong together.

    Args:
        records: whole records, with requests and timeline.
        budget_s: TTFT budget, drawn as a line; default: the SLO of the last run.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    last = records[-1]
    budget_s = budget_s or (last.load.get("slo") or {}).get("ttft_s")
    with styled():
        figures = {
            "TTFT against load": plots.against_load(records, "ttft_s", "TTFT", budget_s),
            "TPOT against load": plots.against_load(records, "tpot_s", "TPOT", None),
            "Throughput against latency": plots.throughput_latency(records),
        }
        runs = [_run(record) for record in records]
        plan = last.deployment.get("plan")
        account = plots.ledger(plan) if plan else None
    environment = Environment(
        loader=PackageLoader("trtbuild.measure.report", ""),
        undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2").render(
        title=title, figures={name: svg for name, svg in figures.items() if svg}, runs=runs, account=account,
        levels=_levels(records) if len(records) > 1 else [], formulas=_formulas(), budget_s=budget_s,
    )  # fmt: skip


def _run(record: Record) -> dict[str, Any]:
    groups = {ALL: record.metrics.get("all", {}), **record.metrics.get("traffic", {})}
    groups |= {name: record.metrics[name] for name in ("interactive", "offline") if name in record.metrics}
    facts = {
        "begun": record.begun,
        "state": f"{record.state} {record.why}".strip(),
        "load": "; ".join(_flow(flow) for flow in record.load.get("flows", ())),
        "measured": f"{record.window_s[0]:.0f} to {record.window_s[1]:.0f} s of {record.duration_s:.0f} s",
        "models": ", ".join(record.deployment.get("models", ())),
        "server": record.deployment.get("address", ""),
        "machine": _machine(record.machine),
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
        "generator": _generator(record),
    }
    return {
        "id": record.run_id, "label": record.label, "facts": facts, "notes": record.notes,
        "latencies": [row for name, group in groups.items() for row in _latencies(name, group)],
        "rates": [(name, *_rates(group)) for name, group in groups.items() if group.get("requests")],
        "server": _server(record.metrics.get("server", {})),
        "changed": [(path, *values) for path, values in record.changed.items()],
        "distributions": plots.distributions(record), "timeline": plots.timeline(record),
    }  # fmt: skip


def _machine(facts: dict[str, Any]) -> str:
    gpus = ", ".join(gpu["name"] for gpu in facts.get("gpus", ())) or "no GPU"
    return f"{facts.get('cpu', '')}, {facts.get('cores', '')} cores, {gpus}"


def _generator(record: Record) -> str:
    if not record.generator:
        return ""
    late = send_error_text(record.generator, record.metrics.get("all", {}))
    return ", ".join(filter(None, (f"{record.generator['cpu_share']:.0%} of a core", late)))


def _flow(flow: dict[str, Any]) -> str:
    shape = ", ".join(
        str(value) if key == "kind" else f"{key} {value}" for key, value in flow["shape"].items() if value
    )
    return f"{flow['model']}: {shape}; {', '.join(item['name'] for item in flow['traffic'])}"


def _latencies(name: str, group: dict[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for metric in LATENCIES:
        data = group.get(metric.name)
        if data and data["n"] and (metric.name != "send_error_s" or name == ALL):
            cells = (_interval(data[part]) for part in _PARTS)
            rows.append((name, metric.title, _count(data), _bounded(data["mean"]), *cells))
    return rows


def _interval(data: dict[str, Any]) -> str:
    if data["value"] is None:
        return "too few requests"
    return f"{_bounded(data)} ({_ms(data['low'])} to {_ms(data['high']) or '?'})"


def _bounded(data: dict[str, Any]) -> str:
    return ("≥ " if data.get("at_least") else "") + _ms(data["value"])


def _count(data: dict[str, Any]) -> str:
    return f"{data['n']}, {data['cut']} cut" if data.get("cut") else str(data["n"])


def _ms(value_s: float | None) -> str:
    return "" if value_s is None else f"{1e3 * value_s:.3g}" if value_s < 1 else f"{1e3 * value_s:.0f}"


def _rates(group: dict[str, Any]) -> tuple[str, ...]:
    rates = [group.get(name) or {"value": None} for name in RATES]
    cells = [
        ""
        if row["value"] is None
        else "window too short"
        if row["low"] is None
        else f"{row['value']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        for row in rates
    ]
    failed = [
        f"{group[name]['value']:.1%} {title}"
        for name, (title, _) in SHARES.items()
        if (group.get(name) or {}).get("value")
    ]
    return (*cells, ", ".join(failed) or "none")


_SERVER = {
    "queue_wait_s": "mean wait in Triton's queue, s",
    "engine_wait_s": "mean wait for a place in the engine, s",
    "generation_mean": "requests that generate, mean",
    "waiting_max": "requests that wait, most",
    "kv_share_mean": "KV pool in use, mean",
    "kv_share_max": "KV pool in use, most",
    "batch": "requests an execution",
    "cpu_cores_mean": "CPU cores, mean",
    "gpu_busy_mean": "GPU busy, mean",
}


def _server(server: dict[str, dict[str, float]]) -> list[tuple[str, str, str]]:
    return [
        (model, title, f"{row[key]:.3g}")
        for model, row in server.items()
        for key, title in _SERVER.items()
        if row.get(key)
    ]


def _levels(records: Sequence[Record]) -> list[tuple[str, ...]]:
    rows = []
    for record in records:
        rate, goodput = (rate_value(record, name) for name in ("tokens_out_per_s", "goodput_per_s"))
        rows.append(
            (
                record.run_id, record.label, plots.load_text(record),
                *(_bounded(plots.figure(record, "ttft_s", part)) for part in ("p50", "p95")),
                _bounded(plots.figure(record, "tpot_s", "p50")),
                "" if rate is None else f"{rate:.1f}", "" if goodput is None else f"{goodput:.2f}",
            )
        )  # fmt: skip
    return rows


def _formulas() -> list[tuple[str, str, str]]:
    latencies = [(metric.title, metric.formula, metric.unit) for metric in LATENCIES]
    return [*latencies, *((title, formula, unit) for title, unit, formula in RATES.values())]
