"""The record of one run: what was measured, on what, and everything that was seen.

JSON form (``Record.as_json``, ``trtbuild runs RUN --json``; read back by ``Record.from_json``), schema
``trtbuild.run/1``::

    {
      "schema": "trtbuild.run/1",
      "run_id": "b7c1d0e4", "series": "…" | null, "kind": "bench" | "sweep" | "tune" | "mix" | "quality",
      "label": "…", "why": "…",
      "state": "running" | "complete" | "interrupted" | "server died" | "died" | "not kept",
      "begun": "2026-01-31T12:00:00+00:00", "begun_unix_s": …, "duration_s": …, "window_s": [from, to],
      "seed": 1,
      "load":       LoadSpec as JSON (measure.load.spec): flows with their shape and traffic classes, SLO, …
      "deployment": {"repository", "models": [names], "spec": … | null, "plan": … | null, "address"},
      "machine":    {"cpu", "cores", "memory_bytes", "gpus": […], "system", "python"},
      "versions":   {"trtbuild": …, "server": …, "openvino-genai": …, …},
      "notes":      ["…"],                       # what a reader must know before believing the figures
      "generator":  {"cpu_share", "send_error_max_s", "sent", "sent_late", "loop_lag_max_s"},
      "metrics":    see measure.metrics.Summary: per traffic class and ``all``
      "changed":    {"load.seed": [before, now], …},     # against the last run of its kind, see changes
      "requests":   [RequestSample fields, …],           # raw, warm-up included (``phase``)
      "timeline":   [[t_s, model, series, value], …]     # the server's side, see measure.timeline
    }

Times are seconds since ``begun``, on a monotonic clock; ``begun_unix_s`` is the wall clock at 0. Only
requests with ``phase == "measured"`` and ``intended_s`` inside ``window_s`` count in percentiles; rates
count what happened inside ``window_s``, whoever sent it. A load that is over before its time (a trace, a
number of requests) has a window that ends with its last answer.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from trtbuild.errors import MeasureError
from trtbuild.measure.load.sample import RequestSample

SCHEMA = "trtbuild.run/1"
State = Literal["running", "complete", "interrupted", "server died", "died", "not kept"]
_LATEST_UNIX_S = 253_402_300_800.0  # the year 10000
TimelineRow = tuple[float, str, str, float]  # t_s, model ("" is the server or machine), series, value


@dataclass
class Record:
    """One run; see the module for what each field holds."""

    load: dict[str, Any]
    run_id: str = field(default_factory=lambda: secrets.token_hex(4))
    series: str | None = None
    kind: str = "bench"
    label: str = ""
    state: State = "running"
    why: str = ""
    begun_unix_s: float = 0.0
    duration_s: float = 0.0
    window_s: tuple[float, float] = (0.0, 0.0)
    seed: int = 0
    deployment: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    generator: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    changed: dict[str, Any] = field(default_factory=dict)
    requests: list[RequestSample] = field(default_factory=list)
    timeline: list[TimelineRow] = field(default_factory=list)

    @property
    def begun(self) -> str:
        """The wall clock at the beginning, UTC, ISO 8601."""
        return datetime.fromtimestamp(self.begun_unix_s, timezone.utc).isoformat(timespec="seconds")

    @property
    def complete(self) -> bool:
        return self.state == "complete"

    def measured(self) -> list[RequestSample]:
        """The requests that count: not of the warm-up, and meant to be sent inside the window."""
        begin_s, end_s = self.window_s
        return [one for one in self.requests if one.phase == "measured" and begin_s <= one.intended_s < end_s]

    def as_json(self) -> dict[str, Any]:
        """The record as data; see the module."""
        return {"schema": SCHEMA, "begun": self.begun, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> Record:
        """The inverse of ``as_json``.

        Raises:
            MeasureError: another schema, a field that is missing, or one that holds what no run writes.
        """
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else None
            raise MeasureError(f"this is no record of a run: its schema is {found!r}, not {SCHEMA!r}")
        try:
            record = TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise MeasureError(f"the record cannot be read: {where}: {first['msg']}") from error
        _check(record)
        return record


def _check(record: Record) -> None:
    """What the types do not say: that the file of runs can hold it, and a page can show it."""
    if not 0 <= record.begun_unix_s < _LATEST_UNIX_S:
        raise MeasureError(f"the record cannot be read: begun_unix_s is {record.begun_unix_s:g}, no time")
    loose = [name for name, value in record.metrics.items() if not isinstance(value, dict)]
    if loose:
        raise MeasureError(f"the record cannot be read: metrics.{loose[0]} is no object")
    for number, one in enumerate(record.requests):
        if len(one.arrival_s) != len(one.arrival_tokens):
            raise MeasureError(
                f"the record cannot be read: requests.{number} has {len(one.arrival_s)} arrival_s and "
                f"{len(one.arrival_tokens)} arrival_tokens"
            )
