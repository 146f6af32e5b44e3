"""The plots of a report. Each gives an SVG element, or None where the runs do not carry it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trtbuild.measure.censored import Curve
from trtbuild.measure.load.sample import RequestSample
from trtbuild.measure.metrics import LATENCIES, observed, rate_value
from trtbuild.measure.records.record import Record
from trtbuild.measure.report.svg import COLOURS, DASHES, MARKERS, as_svg, new_figure

_GIB = 1 << 30
_MOST_POINTS = 4000  # of a scatter
_SEEN = 0.05  # of the busiest process: those below lie on the axis
_LEGEND_LINE = 100  # characters of 7 points over the axes of a figure
_LEGEND_HANDLE = 10  # of them for a line's sample and the space about it
_LEGEND_CHARACTERS = 60  # of a name
_LINES = (  # panel of the timeline: title, series with their names
    ("requests", (("generation", "generating"), ("waiting", "waiting"), ("pending", "in Triton's queue"))),
    ("batch", (("scheduled", "in a step"),)),
)


def load_of(record: Record) -> tuple[float, str] | None:
    """How much load a run is: users or requests a second, of its only flow."""
    flows = record.load.get("flows", ())
    if len(flows) != 1:
        return None
    shape = flows[0]["shape"]
    if shape["kind"] == "closed":
        return float(shape["users"]), "users at once"
    if shape["kind"] in ("poisson", "constant"):
        return float(shape["rate_per_s"]), "requests a second"
    return None


def load_text(record: Record) -> str:
    """The same in words; empty where there are several flows."""
    load = load_of(record)
    if load is None:
        return ""
    one = load[0] == 1
    return f"{load[0]:g} " + (
        load[1].replace("users", "user").replace("requests", "request") if one else load[1]
    )


def _colours(record: Record) -> dict[str, int]:
    """A number for each traffic class, in the order of the load: the same in every figure of a run."""
    of_load = [item["name"] for flow in record.load.get("flows", ()) for item in flow["traffic"]]
    names = dict.fromkeys(one.traffic for one in record.requests)
    ordered = sorted(names, key=lambda name: of_load.index(name) if name in of_load else len(of_load))
    return {name: number for number, name in enumerate(ordered)}


def figure(record: Record, metric: str, part: str) -> dict[str, Any]:
    """A percentile with its interval; values None where there is none."""
    nothing = {"value": None, "low": None, "high": None}
    return ((record.metrics.get("all", {}).get(metric) or {}).get(part)) or nothing


def _comparable(records: Sequence[Record]) -> tuple[list[tuple[float, Record]], str]:
    traffic = [flow["traffic"] for flow in records[-1].load.get("flows", ())]  # others are other experiments
    loads = [
        (load_of(record), record)
        for record in records
        if [flow["traffic"] for flow in record.load.get("flows", ())] == traffic
    ]
    levels = [(*load, record) for load, record in loads if load is not None]
    if not levels:
        return [], ""
    # users and requests a second share no axis: the kind of load with more levels is drawn
    units = [unit for _, unit, _ in levels]
    unit = max(units, key=units.count)
    points = [(amount, record) for amount, its, record in levels if its == unit]
    return sorted(points, key=lambda item: item[0]), unit


def against_load(records: Sequence[Record], metric: str, title: str, budget_s: float | None) -> str | None:
    """A latency's percentiles against the load, with their intervals, and the budget as a line."""
    points, unit = _comparable(records)
    if len({load for load, _ in points}) < 2:
        return None
    drawing = new_figure()
    axes = drawing.add_subplot()
    for number, part in enumerate(("p50", "p95", "p99")):
        known = [(load, figure(record, metric, part)) for load, record in points]
        known = [(load, data) for load, data in known if data["value"] is not None]
        if not known:
            continue
        x = [load for load, _ in known]
        y = np.array([1e3 * data["value"] for _, data in known])
        spread = [
            [max(0.0, value - 1e3 * (data["low"] or 0.0)) for value, (_, data) in zip(y, known, strict=True)],
            [
                max(0.0, 1e3 * (data["high"] or data["value"]) - value)
                for value, (_, data) in zip(y, known, strict=True)
            ],
        ]
        more = [
            (load, value) for load, value, (_, data) in zip(x, y, known, strict=True) if data["high"] is None
        ]
        if more:  # nobody waited long enough to know how far up it goes
            axes.plot(*zip(*more, strict=True), marker="^", linestyle="", color=COLOURS[number], markersize=9)
        axes.errorbar(
            x, y, yerr=spread, label=part.upper(), color=COLOURS[number], marker=MARKERS[number],
            linestyle=DASHES[number], capsize=3, markersize=4,
        )  # fmt: skip
    if budget_s is not None:
        axes.axhline(1e3 * budget_s, color="#000000", linewidth=1)
        axes.annotate(
            f"budget {1e3 * budget_s:g} ms", (1, 1e3 * budget_s), xycoords=("axes fraction", "data"),
            xytext=(-4, 3), textcoords="offset points", ha="right",
        )  # fmt: skip
    axes.set_xlabel(unit)
    axes.set_ylabel(f"{title}, ms")
    axes.set_ylim(bottom=0)
    axes.legend()
    return as_svg(drawing, f"load-{metric}", f"{title} against {unit}")


def throughput_latency(records: Sequence[Record]) -> str | None:
    """Output tokens a second against the end-to-end latency, a point a level."""
    points, unit = _comparable(records)
    rows = []
    for load, record in points:
        rate = rate_value(record, "tokens_out_per_s")
        latency_s = figure(record, "latency_s", "p50")["value"]
        if rate and latency_s is not None:
            rows.append((load, rate, 1e3 * latency_s))
    if len({load for load, _, _ in rows}) < 2:
        return None
    drawing = new_figure()
    axes = drawing.add_subplot()
    axes.plot(
        [row[2] for row in rows], [row[1] for row in rows],
        color=COLOURS[0], marker="o", markersize=3, linestyle="", alpha=0.5,
    )  # fmt: skip
    levels = [
        (load, *np.mean([row[1:] for row in rows if row[0] == load], axis=0))
        for load in sorted({row[0] for row in rows})
    ]  # the line leads over the mean of a level's runs
    axes.plot(
        [row[2] for row in levels], [row[1] for row in levels], color=COLOURS[0], marker="o", markersize=4
    )
    for load, rate, latency_ms in levels:
        axes.annotate(
            f"{load:g}", (latency_ms, rate), xytext=(5, -10), textcoords="offset points", fontsize=8
        )
    axes.set_xlabel("end-to-end latency P50, ms")
    axes.set_ylabel("output tokens a second")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_title(f"points: {unit}", fontsize=9, loc="left")
    return as_svg(drawing, "throughput", "Throughput against latency")


def distributions(record: Record) -> str | None:
    """Cumulative distributions of the latencies, a line a traffic class; failures keep a line below 1."""
    measured = record.measured()
    numbers = _colours(record)
    shown = [metric for metric in LATENCIES if metric.name in ("ttft_s", "tpot_s", "latency_s")]
    data = {
        metric: [
            (name, observed(metric, [one for one in measured if one.traffic == name])) for name in numbers
        ]
        for metric in shown
    }
    data = {metric: rows for metric, rows in data.items() if any(len(values) for _, values in rows)}
    if not data:
        return None
    drawing = new_figure(height_in=2.8)
    for number, (metric, rows) in enumerate(data.items()):
        axes = drawing.add_subplot(1, len(data), number + 1)
        for name, values in rows:
            index = numbers[name]
            if len(values):
                curve = Curve(values)
                axes.step(
                    1e3 * curve.steps, curve.share, where="post", label=name,
                    color=COLOURS[index % len(COLOURS)], linestyle=DASHES[index % len(DASHES)],
                )  # fmt: skip
        axes.set_title(metric.title, fontsize=9)
        axes.set_xlabel("ms")
        axes.set_ylim(0, 1.02)
        if number == 0:
            axes.set_ylabel("share of requests")
        if len(rows) > 1 and number == 0:
            axes.legend(fontsize=8)
    return as_svg(drawing, f"distribution-{record.run_id}", "Latency distributions")


def timeline(record: Record) -> str | None:
    """Queue, batch, KV use and CPU or GPU over time, with each request's TTFT above."""
    series = _series(record)
    panels = [
        (title, [(key, label) for key, label in lines if any(name == key for _, name in series)])
        for title, lines in _LINES
    ]
    panels = [(title, lines) for title, lines in panels if lines]
    kv = any(name == "kv_used" for _, name in series)
    busy = any(name in ("cpu_cores", "gpu_busy") for _, name in series)
    count = 1 + len(panels) + kv + busy
    drawing = new_figure(height_in=1.0 + 1.4 * count)
    axes = drawing.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    _scatter(axes[0], record.requests, _colours(record))
    row = 1
    for title, lines in panels:
        _draw_series(axes[row], series, dict(lines))
        axes[row].set_ylabel(title)
        row += 1
    if kv:
        _draw_kv(axes[row], series)
        row += 1
    if busy:
        _draw_series(axes[row], series, {"cpu_cores": "CPU cores", "gpu_busy": "GPU"}, with_model=True)
        axes[row].set_ylabel("busy")
    begin_s, end_s = record.window_s
    for axis in axes:
        axis.axvspan(0, begin_s, color="#000000", alpha=0.06, linewidth=0)
        axis.set_xlim(0, max(record.duration_s, end_s))
    axes[-1].set_xlabel("seconds; grey: warm-up, which counts in nothing")
    return as_svg(drawing, f"timeline-{record.run_id}", "Timeline of requests, queue, batch and KV cache")


def _series(record: Record) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for t_s, model, name, value in record.timeline:
        times, values = found.setdefault((model, name), ([], []))
        times.append(t_s)
        values.append(value)
    return found


def _scatter(axes: Any, requests: Sequence[RequestSample], numbers: dict[str, int]) -> None:
    step = max(1, len(requests) // _MOST_POINTS)
    for name, number in numbers.items():
        points = [
            (one.intended_s, 1e3 * (one.ttft_s if one.kind == "text" else one.latency_s or 0.0))
            for one in requests[::step]
            if one.traffic == name and one.ttft_s is not None
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(
                x, y, MARKERS[number % len(MARKERS)], markersize=2.5, alpha=0.6, label=name,
                color=COLOURS[number % len(COLOURS)],
            )  # fmt: skip
    failed = [one.intended_s for one in requests if one.outcome not in ("ok", "unfinished")]
    if failed:
        axes.plot(failed, [0] * len(failed), "x", color=COLOURS[1], markersize=4, label="failed")
    axes.set_ylabel("TTFT, ms")
    axes.set_ylim(bottom=0)
    if axes.get_legend_handles_labels()[0]:
        _legend_above(axes)


def _draw_series(axes: Any, series: Any, names: dict[str, str], *, with_model: bool = False) -> None:
    number = 0
    shown = {key: data for key, data in series.items() if key[1] in names and any(data[1])}
    most = {
        name: max(max(values) for (_, its), (_, values) in shown.items() if its == name) for _, name in shown
    }
    for (model, name), (times, values) in shown.items():
        if not with_model or max(values) >= _SEEN * most[name]:
            label = f"{names[name]} {model or 'tritonserver'}" if with_model else names[name]
            axes.plot(
                times, values, label=label, color=COLOURS[number % len(COLOURS)],
                linestyle=DASHES[number % len(DASHES)], linewidth=1.2,
            )  # fmt: skip
            number += 1
    axes.set_ylim(bottom=0)
    if number:
        _legend_above(axes)


def _legend_above(axes: Any) -> None:
    """Where it hides no data, and no wider than the page: a layout gives what is wider room of the axes."""
    handles, names = axes.get_legend_handles_labels()
    labels = [name if len(name) <= _LEGEND_CHARACTERS else f"{name[:_LEGEND_CHARACTERS]}…" for name in names]
    columns = max(1, min(6, _LEGEND_LINE // (_LEGEND_HANDLE + max(map(len, labels)))))
    axes.legend(
        handles, labels, fontsize=7, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=columns
    )


def _draw_kv(axes: Any, series: Any) -> None:
    for number, ((model, name), (times, values)) in enumerate(series.items()):
        most = series.get((model, "kv_max"), ([], [0.0]))[1][-1]
        if name == "kv_used" and most:
            color = COLOURS[number % len(COLOURS)]
            axes.fill_between(
                times, [100 * value / most for value in values], step="post", alpha=0.4, color=color
            )
    axes.set_ylabel("KV used, %")
    axes.set_ylim(0, 100)


def ledger(plan: dict[str, Any]) -> str | None:
    """The plan's memory account as one bar."""
    items = [(row["item"], row["bytes"]) for row in plan.get("ledger", ()) if row["bytes"] > 0]
    if not items:
        return None
    if plan.get("free_bytes", 0) > 0:
        items.append(("free", plan["free_bytes"]))
    drawing = new_figure(height_in=1.8 + 0.16 * len(items))
    axes = drawing.add_subplot()
    left = 0.0
    for number, (name, size_bytes) in enumerate(items):
        width = size_bytes / _GIB
        free = name == "free"
        axes.barh(
            0, width, left=left, height=0.6, edgecolor="#000000", linewidth=0.5,
            label=f"{name}: {width:.2f} GiB",
            color="#ffffff" if free else COLOURS[number % len(COLOURS)],
            hatch=("", "//", "..")[number // len(COLOURS) % 3],
        )  # fmt: skip
        left += width
    axes.set_yticks([])
    axes.set_xlabel(f"GiB of {plan['gpu']['name']}")
    drawing.legend(fontsize=7, ncols=2, loc="outside lower center")
    axes.grid(visible=False)
    return as_svg(drawing, "ledger", "Memory ledger of the plan")
