"""What differs between two runs: their load, deployment, versions and machine, value by value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtbuild.measure.records.record import Record
from trtbuild.measure.records.store import Store

_PARTS = ("load", "deployment", "versions", "machine")
# Follow from the rest, or name the same thing anew each time.
_LEFT_OUT = (
    "deployment.address",
    "deployment.plan.ledger",
    "deployment.plan.host_ledger",
    "deployment.plan.findings",
)
_TEXT = 80  # characters of a value


def flat(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of every leaf of JSON-like data."""
    if any(path == left or path.startswith(f"{left}.") for left in _LEFT_OUT):
        return
    if isinstance(data, dict):
        for key, value in data.items():
            yield from flat(value, f"{path}.{key}" if path else key)
    elif isinstance(data, (list, tuple)):
        for number, value in enumerate(data):
            yield from flat(value, f"{path}.{number}")
    else:
        yield path, data


def differences(before: Record, after: Record) -> dict[str, list[Any]]:
    """``{path: [before, after]}`` of what differs in load, deployment, versions and machine."""
    old, new = (dict(flat({part: getattr(record, part) for part in _PARTS})) for record in (before, after))
    return {
        path: [_short(old.get(path)), _short(new.get(path))]
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    }


def changed_since(store: Store, record: Record) -> dict[str, list[Any]]:
    """What changed since the last complete run like it; empty where there is none.

    Alike are runs of one repository (or address where none is known) and one kind that have the same label,
    or the same models, shapes and classes of traffic: others are other experiments, not changes.
    """
    key = "repository" if record.deployment.get("repository") else "address"
    for other in reversed(store.runs()):
        same = other.kind == record.kind and other.deployment.get(key) == record.deployment.get(key)
        alike = (record.label and other.label == record.label) or _what(other) == _what(record)
        if other.run_id != record.run_id and other.complete and same and alike:
            return {"run": [other.run_id, record.run_id], **differences(other, record)}
    return {}


def _what(record: Record) -> list[Any]:
    """What a load is, without how much of it."""
    return [
        (flow["model"], flow["shape"]["kind"], [item["name"] for item in flow["traffic"]])
        for flow in record.load.get("flows", ())
    ]


def _short(value: Any) -> Any:
    return f"{value[: _TEXT - 1]}…" if isinstance(value, str) and len(value) > _TEXT else value
