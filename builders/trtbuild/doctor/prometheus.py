"""Prometheus text exposition, as far as Triton's metrics use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>[^\s]+)")
_LABEL = re.compile(r'(?P<key>\w+)="(?P<value>(?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One line: a series' name, its labels, its value."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Metrics:
    """All samples of one scrape."""

    samples: tuple[Sample, ...] = ()

    def find(self, name: str, **labels: str) -> Iterator[Sample]:
        """Samples of a series whose labels include these."""
        for sample in self.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                yield sample

    def value(self, name: str, **labels: str) -> float | None:
        """The sum over versions and other labels; None where there is no such series."""
        values = [sample.value for sample in self.find(name, **labels)]
        return sum(values) if values else None


def parse_metrics(text: str) -> Metrics:
    """Reads a scrape; lines that are none are left out."""
    samples = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        labels = {label["key"]: label["value"] for label in _LABEL.finditer(match["labels"] or "")}
        samples.append(Sample(match["name"], labels, value))
    return Metrics(tuple(samples))
