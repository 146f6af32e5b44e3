"""The latency model against published figures: fitted on half of the groups, judged on the other half."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import yaml

from trtbuild.catalog.latency import LatencyConstants
from trtbuild.plan.latency.cases import Case, Timing, make_case
from trtbuild.plan.latency.fit import fit, log_errors, spreads
from trtbuild.plan.latency.records import SpeedRecord, folds, halves

KINDS = ("throughput", "ttft", "tpot")
_HEADER = """\
# Constants of the latency model, fitted by scripts/fit-latency on one half of the groups of
# tests/plan/data/speed_records.csv (published figures of TensorRT-LLM), judged on the other.
# families: shares of the data sheet's rates. `records` says on how many fitted records a share rests; one
#   with 0 is the first guess of trtbuild.plan.latency.fit, unproved.
# links, flows: seconds and shares. without_nvlink: cards of which NVLink joins at most so many.
# spreads: quantiles of published over predicted values in the judged half.
"""


@dataclass(frozen=True)
class Errors:
    """Relative errors of one kind of figure."""

    name: str
    relative: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the errors' sizes."""
        return float(np.median(np.abs(self.relative)))

    def row(self) -> str:
        """Count, median and 90 % quantile of the sizes, and the median error with its sign."""
        sizes = np.abs(self.relative)
        return (
            f"{self.name:44}{len(sizes):>6}{self.median:>9.1%}{np.quantile(sizes, 0.9):>9.0%}"
            f"{np.median(self.relative):>+9.1%}"
        )


def cases_of(records: Iterable[SpeedRecord]) -> tuple[list[Case], dict[str, str]]:
    """What can be simulated, and for the rest why not, by id."""
    cases, left_out = [], {}
    for record in records:
        case = make_case(record)
        if isinstance(case, Case):
            cases.append(case)
        else:
            left_out[record.id] = case
    return cases, left_out


def errors(cases: Sequence[Case], constants: LatencyConstants) -> list[tuple[SpeedRecord, float]]:
    """Each record with predicted over published value less one."""
    found = log_errors([Timing(case, constants) for case in cases], constants)
    return [(case.record, float(np.expm1(error))) for case, error in zip(cases, found, strict=True)]


def by_kind(found: Sequence[tuple[SpeedRecord, float]]) -> list[Errors]:
    """Throughput, first tokens and gaps apart."""
    return [
        Errors(kind, tuple(error for record, error in found if record.kind == kind))
        for kind in KINDS
        if any(record.kind == kind for record, _ in found)
    ]


def by_hardware(found: Sequence[tuple[SpeedRecord, float]]) -> list[Errors]:
    """The same by engine, GPU and precision."""
    parts: dict[str, list[float]] = {}
    for record, error in found:
        name = f"{record.kind:11}{record.engine[:16]:17}{record.gpu:14}{record.weights}"
        parts.setdefault(name, []).append(error)
    return [Errors(name, tuple(values)) for name, values in sorted(parts.items())]


def table(title: str, rows: Sequence[Errors]) -> str:
    """A table of errors as text."""
    head = f"{title:44}{'n':>6}{'median':>9}{'p90':>9}{'bias':>9}"
    return "\n".join([head, *(row.row() for row in rows)])


def fitted(records: Sequence[SpeedRecord], start: LatencyConstants) -> LatencyConstants:
    """Constants from the first half of the groups, with the spreads of the second half."""
    ours, others = halves(records)
    constants = fit(cases_of(ours)[0], start)
    judged = [Timing(case, constants) for case in cases_of(others)[0]]
    return constants.model_copy(update={"spreads": spreads(judged, constants)})


def cross_validated(
    records: Sequence[SpeedRecord], start: LatencyConstants, parts: int, only: int | None = None
) -> list[Errors]:
    """Errors of each part of the groups, or ``only`` of one (from 1), with constants from all the others."""
    found: list[tuple[SpeedRecord, float]] = []
    divided = folds(records, parts)
    for number, part in enumerate(divided):
        if only not in (None, number + 1):
            continue
        rest = [record for other in divided[:number] + divided[number + 1 :] for record in other]
        constants = fit(cases_of(rest)[0], start)
        found += errors(cases_of(part)[0], constants)
    return by_kind(found)


def as_yaml(constants: LatencyConstants) -> str:
    """The content of ``latency.yaml``; constants are written with four significant digits."""
    return _HEADER + yaml.safe_dump(
        _rounded(constants.model_dump(mode="json")), sort_keys=False, default_flow_style=None, width=110
    )


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
