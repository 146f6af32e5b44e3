"""The plan's arithmetic held against published memory figures: a prediction and its error for each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

from trtbuild.catalog.formats import find_format
from trtbuild.catalog.models import find_model
from trtbuild.plan import constants
from trtbuild.plan.activations import (
    decoder_buffers_bytes,
    execution_context_bytes,
    runtime_buffers_bytes,
    torch_activation_bytes,
)
from trtbuild.plan.architecture import Architecture, from_record
from trtbuild.plan.kv import kv_bytes_per_token
from trtbuild.plan.weights import engine_copy_bytes, weights

_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "MiB": 1 << 20, "GB": 1 << 30, "GiB": 1 << 30}


class MemoryRecord(BaseModel):
    """One figure of a log, with the settings that belong to it."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    id: str
    source: str
    model: str | None
    engine: str
    format: str
    kv_bits: int
    tp: int
    metric: str
    value: float
    unit: str
    max_num_tokens: int | None = None
    max_batch_size: int | None = None
    max_seq_len: int | None = None
    logits_rows: int | None = None
    version: str | None = None
    tokens_per_block: int = 1
    tokens: int | None = None
    pool_bytes: float | None = None
    kv_bytes_per_token: int | None = None
    total_gib: float | None = None
    assumed: tuple[str, ...] = ()
    fitted: str | None = None
    left_out: str | None = None

    @property
    def amount(self) -> float:
        """The value in bytes, tokens or blocks."""
        return self.value * _UNITS.get(self.unit.split()[0], 1)


@dataclass(frozen=True)
class Comparison:
    """A record with what the plan's arithmetic says; ``error`` is relative to the record's value."""

    record: MemoryRecord
    predicted: float | None

    @property
    def error(self) -> float | None:
        if self.predicted is None:
            return None
        return self.predicted / self.record.amount - 1


def read_records(path: Path) -> tuple[MemoryRecord, ...]:
    """Records of a YAML file."""
    return tuple(MemoryRecord.model_validate(row) for row in yaml.safe_load(path.read_text(encoding="utf-8")))


def compare(records: Iterable[MemoryRecord]) -> tuple[Comparison, ...]:
    """Each record with its prediction; None where the record says why there is none."""
    return tuple(
        Comparison(record, None if record.left_out is not None else predict(record)) for record in records
    )


def predict(record: MemoryRecord) -> float:
    """What the plan's arithmetic gives for a record, in its unit's base (bytes, tokens, blocks)."""
    if record.metric.startswith("kv_"):
        return _kv(record)
    architecture = _architecture(record)
    if record.metric in ("engine_weights", "weights", "build_peak_memory"):
        return _weights(record, architecture)
    if record.metric == "free_at_kv_allocation":
        taken = constants.ENGINE_PROCESS_BYTES + _weights(record, architecture)
        taken += sum(_activation(record, architecture, metric) for metric in _BEFORE_THE_POOL)
        return (record.total_gib or 0) * (1 << 30) - taken
    return _activation(record, architecture, record.metric)


_BEFORE_THE_POOL = ("execution_context", "runtime_buffers", "decoder_buffers")


def _architecture(record: MemoryRecord) -> Architecture:
    return from_record(find_model(record.model or ""))


def _weights(record: MemoryRecord, architecture: Architecture) -> int:
    compiled = record.engine == "tensorrt-llm"
    total = weights(
        architecture=architecture,
        fmt=find_format(record.format),
        tp=record.tp,
        embedding_split=not compiled,
    ).total_bytes
    return total + (engine_copy_bytes(architecture=architecture, tp=record.tp) if compiled else 0)


def _activation(record: MemoryRecord, architecture: Architecture, metric: str) -> int:
    batch, seq_len = record.max_batch_size or 0, record.max_seq_len or 0
    if metric == "execution_context":
        return execution_context_bytes(
            architecture=architecture,
            fmt=find_format(record.format),
            tp=record.tp,
            max_num_tokens=record.max_num_tokens or 0,
            max_batch_size=record.logits_rows or batch,
        )
    if metric == "activation_peak":
        return torch_activation_bytes(
            architecture=architecture,
            tp=record.tp,
            max_num_tokens=record.max_num_tokens or 0,
            max_batch_size=batch,
        )
    size = {"runtime_buffers": runtime_buffers_bytes, "decoder_buffers": decoder_buffers_bytes}[metric]
    return size(
        architecture=architecture,
        max_batch_size=batch,
        max_seq_len=seq_len,
        trtllm_version=record.version,
    )


def _kv(record: MemoryRecord) -> float:
    per_token = record.kv_bytes_per_token or kv_bytes_per_token(
        architecture=_architecture(record), bits=record.kv_bits, tp=record.tp
    )
    if record.metric == "kv_cache_bytes":
        return (record.tokens or 0) * per_token
    tokens = (record.pool_bytes or 0) / per_token
    return tokens / record.tokens_per_block if record.metric == "kv_blocks" else tokens


def table(comparisons: Iterable[Comparison]) -> str:
    """All records as text, none left out: published and predicted value, error, and what it rests on."""
    lines = [f"{'record':11}{'metric':23}{'published':>18}{'predicted':>18}{'error':>9}  rests on"]
    for comparison in comparisons:
        record = comparison.record
        unit = _UNITS.get(record.unit.split()[0], 1)
        shown = "-" if comparison.predicted is None else f"{comparison.predicted / unit:.2f}"
        error = "-" if comparison.error is None else f"{comparison.error:+.1%}"
        notes = [f"fitted here: {record.fitted}"] if record.fitted else []
        notes += [f"assumed: {', '.join(record.assumed)}"] if record.assumed else []
        notes += [f"not predicted: {record.left_out}"] if record.left_out else []
        published = f"{record.value:g} {record.unit.split()[0]}"
        row = f"{record.id:11}{record.metric:23}{published:>18}{shown:>18}{error:>9}  {'; '.join(notes)}"
        lines.append(row.rstrip())
    return "\n".join(lines)
