"""Records as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from trtbuild.measure.metrics import rate_value
from trtbuild.measure.records.record import Record

_COLUMNS = (
    "number", "traffic", "model", "kind", "phase", "intended_s", "sent_s", "first_s", "end_s", "outcome",
    "prompt_tokens", "output_tokens", "max_tokens", "prefix_tokens", "degrade_step", "send_error_s", "ttft_s",
    "tpot_s", "latency_s", "error",
)  # fmt: skip


def requests_csv(record: Record) -> str:
    """One row a request, warm-up included; empty cells where there is no value."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(("run_id", *_COLUMNS))
    table.writerows((record.run_id, *(getattr(one, name) for name in _COLUMNS)) for one in record.requests)
    return text.getvalue()


def runs_csv(records: Iterable[Record]) -> str:
    """One row a run, with its main figures; ``at_least`` names those whose true value is larger."""
    text = io.StringIO()
    table = csv.writer(text)
    parts = {
        f"{metric}_{part}": (metric, part)
        for metric in ("ttft_s", "tpot_s", "latency_s")
        for part in ("p50", "p95", "p99")
    }
    rates = ["tokens_out_per_s", "tokens_in_per_s", "requests_per_s", "goodput_per_s"]
    table.writerow(("run_id", "begun", "kind", "label", "state", "requests", *parts, *rates, "at_least"))
    for record in records:
        group = record.metrics.get("all", {})
        found = {name: (group.get(metric) or {}).get(part) or {} for name, (metric, part) in parts.items()}
        more = " ".join(name for name, data in found.items() if data.get("at_least"))
        values = [rate_value(record, name) for name in rates]
        table.writerow(
            (
                *(record.run_id, record.begun, record.kind, record.label, record.state),
                *(group.get("requests"), *(data.get("value") for data in found.values()), *values, more),
            )
        )
    return text.getvalue()
