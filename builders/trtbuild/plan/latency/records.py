"""Published speed figures, and what each of them says was run."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

JUDGED_ENGINES = ("tensorrt-llm", "triton+tensorrt-llm")


@dataclass(frozen=True)
class SpeedRecord:
    """One figure. Times are seconds, rates tokens (or requests) a second over all GPUs unless ``per_gpu``."""

    id: str
    group: str
    reliability: str
    engine: str
    version: str
    flow: str
    model: str
    params_b: float | None
    active_b: float | None
    kv_bytes_per_token_16bit: float | None
    gpu: str
    n_gpus: int
    tp: int
    pp: int | None
    weights: str
    kv: str
    isl: int
    osl: int
    load: str
    level: float | None
    requests: int | None
    max_batch: int | None
    max_num_tokens: int | None
    kv_fraction: float | None
    policy: str
    metric: str
    value: float

    @property
    def judged(self) -> bool:
        """Whether it counts: TensorRT-LLM, with settings that are known."""
        return self.engine in JUDGED_ENGINES and self.reliability in "AB"

    @property
    def kind(self) -> str:
        """throughput, ttft, tpot or e2e."""
        head = self.metric.split("_")[0]
        return {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "e2e": "e2e"}.get(head, "throughput")


_WHOLE = {"n_gpus", "tp", "pp", "isl", "osl", "requests", "max_batch", "max_num_tokens"}
_REAL = {"params_b", "active_b", "kv_bytes_per_token_16bit", "level", "kv_fraction", "value"}


def read_speed_records(path: Path) -> tuple[SpeedRecord, ...]:
    """Records of a CSV file with a column for each field."""
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(_record(row) for row in csv.DictReader(file))


def _record(row: dict[str, str]) -> SpeedRecord:
    values: dict[str, object] = {}
    for field in fields(SpeedRecord):
        text = row[field.name]
        if field.name in _WHOLE:
            values[field.name] = int(float(text)) if text else None
        elif field.name in _REAL:
            values[field.name] = float(text) if text else None
        else:
            values[field.name] = text
    return SpeedRecord(**values)  # type: ignore[arg-type]


def halves(records: Iterable[SpeedRecord]) -> tuple[list[SpeedRecord], list[SpeedRecord]]:
    """Records to fit on and records to judge by: groups are never split, and each source is halved.

    Groups of a source in the order of their names' SHA-256, every other one.
    """
    records = list(records)
    groups = sorted({(record.group.split(":")[0], _digest(record.group), record.group) for record in records})
    ours: set[str] = set()
    place: dict[str, int] = {}
    for source, _, group in groups:
        place[source] = place.get(source, 0) + 1
        if place[source] % 2:
            ours.add(group)
    fitted = [record for record in records if record.group in ours]
    return fitted, [record for record in records if record.group not in ours]


def folds(records: Sequence[SpeedRecord], count: int) -> list[list[SpeedRecord]]:
    """``count`` parts by group, for cross-validation."""
    parts: list[list[SpeedRecord]] = [[] for _ in range(count)]
    for record in records:
        parts[int(_digest(record.group), 16) % count].append(record)
    return parts


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
