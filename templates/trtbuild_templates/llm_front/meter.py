"""Counts and times of one front, by class of traffic: added up here, handed to Triton about once a second.

A metric call costs 18 µs, so that there is none per token. Histograms are kept as Prometheus's own
``_bucket``, ``_sum`` and ``_count`` series in counters: Triton's histograms take one call per value.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections import Counter
from typing import Any

TTFT_BUCKETS_S = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 20.0)
ITL_BUCKETS_S = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.4, 0.8, 1.6)
HELD_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
PERIOD_S = 1.0
DEFAULT = "default"  # the class of requests that name none
OTHER = "other"  # of those that name what is none, or one too many
CLASSES = 16  # beside OTHER; each has about 50 series
STEPS = 9  # of a degrade chain; those behind count together
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")

Series = list[tuple[str, dict[str, str], float]]


class Histogram:
    """Values in buckets. One thread adds, another reads totals that only grow."""

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def add(self, value_s: float, count: int = 1) -> None:
        """Adds ``count`` values of ``value_s`` seconds."""
        self.counts[bisect_left(self.bounds_s, value_s)] += count
        self.sum_s += value_s * count

    def series(self) -> Series:
        """(suffix, labels, total): cumulative buckets, the sum in seconds and the count."""
        made: Series = []
        total = 0
        for bound, count in zip((*self.bounds_s, float("inf")), self.counts, strict=True):
            total += count
            made.append(("_bucket", {"le": "+Inf" if bound == float("inf") else f"{bound:g}"}, total))
        return [*made, ("_sum", {}, self.sum_s), ("_count", {}, total)]


class Totals:
    """Totals of one class since the front's start."""

    def __init__(self) -> None:
        self.ttft = Histogram(TTFT_BUCKETS_S)
        self.itl = Histogram(ITL_BUCKETS_S)
        self.held = Histogram(HELD_BUCKETS_S)
        self.input_tokens = 0
        self.seen_tokens = 0
        self.output_tokens = 0
        self.responses = 0
        self.reasons: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.ended_count = 0

    def ended(self, reason: str, degrade_step: int = 0) -> None:
        """Counts one answer by its finish reason, or ``error``, and by its step if that is above 0."""
        self.reasons[reason] += 1
        if degrade_step:
            self.steps[str(degrade_step) if degrade_step <= STEPS else f"{STEPS + 1}+"] += 1
        self.ended_count += 1

    def series(self) -> Series:
        """All totals as (name, labels, value)."""
        made: Series = [
            ("trtbuild_tokens_total", {"kind": "input"}, self.input_tokens),
            ("trtbuild_tokens_total", {"kind": "output"}, self.output_tokens),
            ("trtbuild_prefix_tokens_total", {}, self.seen_tokens),
            ("trtbuild_responses_total", {}, self.responses),
        ]
        made += [
            ("trtbuild_requests_total", {"reason": reason}, n) for reason, n in list(self.reasons.items())
        ]
        made += [
            ("trtbuild_degraded_requests_total", {"step": step}, n) for step, n in list(self.steps.items())
        ]
        histograms = {"ttft": self.ttft, "itl": self.itl, "held": self.held}
        for name, histogram in ((f"trtbuild_{key}_seconds", value) for key, value in histograms.items()):
            made += [(name + suffix, labels, value) for suffix, labels, value in histogram.series()]
        return made


class Meter:
    """Totals of one front since its start, by class."""

    def __init__(self) -> None:
        self._classes = {DEFAULT: Totals()}

    def of(self, name: object) -> Totals:
        """The totals of the class that a request names; one thread only.

        A name is a label and no reason to refuse a request: what is none counts as ``OTHER``.

        Args:
            name: of any type, as a client may send it; None or empty for none.
        """
        if name is None or name == "":
            return self._classes[DEFAULT]
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            name = OTHER
        found = self._classes.get(name)
        if found is None:
            if len(self._classes.keys() - {OTHER}) >= CLASSES:
                name = OTHER
            found = self._classes.setdefault(name, Totals())
        return found

    @property
    def ended_count(self) -> int:
        """How many answers ended; for the thread that calls ``of``."""
        return sum(totals.ended_count for totals in self._classes.values())

    def series(self) -> Series:
        """All totals as (name, labels, value); every one has the label ``class``."""
        return [
            (series, {"class": name, **labels}, value)
            for name, totals in list(self._classes.items())
            for series, labels, value in totals.series()
        ]


_HELP = {
    "trtbuild_tokens_total": "Tokens of prompts and answers",
    "trtbuild_prefix_tokens_total": "Tokens of prompts in blocks that an earlier prompt began with",
    "trtbuild_responses_total": "Responses sent; fewer than tokens where they were sent together",
    "trtbuild_requests_total": "Requests that ended, by finish reason",
    "trtbuild_degraded_requests_total": "Requests that ended, by the step of a degrade chain they came from",
    "trtbuild_ttft_seconds": "Time from the request to its first token",
    "trtbuild_itl_seconds": "Time between tokens",
    "trtbuild_held_seconds": "Time from the oldest token of a response to its sending",
}


class Exporter:
    """Hands a meter's totals to Triton's metrics, in a thread of its own.

    Args:
        pb_utils: Triton's Python backend module.
        model: value of the label ``model``.
    """

    def __init__(self, meter: Meter, pb_utils: Any, model: str) -> None:
        self._meter, self._pb_utils, self._model = meter, pb_utils, model
        self._families: dict[str, Any] = {}
        self._metrics: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}
        self._sent: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Hands over the last totals and ends the thread."""
        self._stop.set()
        self._thread.join(timeout=5)
        self._metrics.clear()  # Triton wants a family's metrics gone before the family
        self._families.clear()

    def flush(self) -> None:
        """Hands over what grew since the last time."""
        for name, labels, value in self._meter.series():
            key = (name, tuple(labels.items()))
            grown = value - self._sent.get(key, 0.0)
            if grown > 0 or key not in self._metrics:
                self._metric(name, labels, key).increment(max(grown, 0.0))
                self._sent[key] = value

    def _metric(self, name: str, labels: dict[str, str], key: Any) -> Any:
        if key not in self._metrics:
            if name not in self._families:
                stem = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
                self._families[name] = self._pb_utils.MetricFamily(
                    name=name, description=_HELP[stem], kind=self._pb_utils.MetricFamily.COUNTER
                )
            self._metrics[key] = self._families[name].Metric(labels={"model": self._model, **labels})
        return self._metrics[key]

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self.flush()
        self.flush()
