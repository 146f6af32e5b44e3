"""Two runs side by side: what differs, by how much, and whether that is more than chance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trtbuild.measure import stats
from trtbuild.measure.censored import quantile as quantile_of
from trtbuild.measure.metrics import LATENCIES, RATES, SHARES, observed
from trtbuild.measure.records.changes import differences
from trtbuild.measure.records.record import Record

Verdict = Literal["better", "worse", "no difference shown", "too few requests"]
_QUANTILES = (0.5, 0.95, 0.99)
# Must be the same in both: another load is another experiment.
_SAME = ("load.flows", "load.degrade", "load.timeout_s")
_SAME_QUESTIONS = (
    "load.prompts", "load.questions", "load.max_tokens", "load.repeats", "load.needles", "load.baseline",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One figure of both runs. ``difference`` is after − before, with its interval.

    Attributes:
        at_least: of before and after, whether the true value is larger, see `censored`.
    """

    metric: str
    unit: str
    before: float | None
    after: float | None
    difference: stats.Estimate
    verdict: Verdict
    at_least: tuple[bool, bool] = (False, False)

    @property
    def relative(self) -> float | None:
        """(after − before) / before."""
        if not self.before or self.after is None:
            return None
        return self.after / self.before - 1


@dataclass(frozen=True)
class Comparison:
    """``reasons``: why the two cannot be compared, if there are any. ``differs``: what is not the same."""

    rows: tuple[Row, ...]
    reasons: tuple[str, ...]
    differs: dict[str, list[Any]]


def compare(before: Record, after: Record) -> Comparison:
    """Compares the latencies by bootstrap, the rates and shares by their intervals."""
    differs = differences(before, after)
    if before.kind == after.kind == "quality":
        rows = tuple(_quality_rows(before, after))
    else:
        rows = (*_latency_rows(before, after), *_rate_rows(before, after), *_share_rows(before, after))
    return Comparison(rows, tuple(_obstacles(before, after, differs)), differs)


def _obstacles(before: Record, after: Record, differs: dict[str, list[Any]]) -> Iterator[str]:
    if "quality" in (before.kind, after.kind):
        if before.kind != after.kind:
            yield f"{before.run_id} is a {before.kind} run, {after.run_id} a {after.kind} run"
            return
        for path, (old, new) in differs.items():
            if path in _SAME_QUESTIONS:
                yield f"{path.removeprefix('load.')} differs: {old} and {new}"
        return
    for record in (before, after):
        if not record.complete:
            yield f"{record.run_id} is not complete: {record.state}{', ' + record.why if record.why else ''}"
        elif not record.measured():
            yield f"{record.run_id} measured no request"
    other_kinds = {path.removesuffix(".kind") for path in differs if path.endswith(".kind")}
    for path, (old, new) in differs.items():
        of_one_kind = None in (old, new) and path.rpartition(".")[0] in other_kinds
        if path.startswith(_SAME) and not of_one_kind:
            old, new = ("nothing" if value is None else value for value in (old, new))
            yield f"the load differs, {path.removeprefix('load.')}: {old} and {new}"


def _latency_rows(before: Record, after: Record) -> Iterator[Row]:
    for metric in LATENCIES:
        if metric.name == "send_error_s":
            continue
        old, new = (
            observed(metric, sorted(record.measured(), key=lambda one: one.intended_s))
            for record in (before, after)
        )
        if not len(old) or not len(new):
            continue
        for quantile in _QUANTILES:
            name = f"{metric.title} P{100 * quantile:g}"
            if min(len(old), len(new)) < stats.least_count(quantile):
                yield Row(name, "s", None, None, stats.Estimate(None), "too few requests")
                continue
            change = stats.quantile_difference(old, new, quantile)
            found = [quantile_of(side, quantile) for side in (old, new)]
            verdict = _verdict(change, low_is_good=True)
            yield Row(
                name, "s", found[0].value, found[1].value, change, verdict,
                (found[0].at_least, found[1].at_least),
            )  # fmt: skip


def _rate_rows(before: Record, after: Record) -> Iterator[Row]:
    for name, (title, unit, _) in RATES.items():
        for old, new in _pair(before, after, name):
            change = _independent(old, new)
            yield Row(title, unit, old["value"], new["value"], change, _verdict(change, low_is_good=False))


def _share_rows(before: Record, after: Record) -> Iterator[Row]:
    for name, (title, _) in SHARES.items():
        for old, new in _pair(before, after, name):
            change = _independent(old, new)
            yield Row(title, "share", old["value"], new["value"], change, _verdict(change, low_is_good=True))


def _quality_rows(before: Record, after: Record) -> Iterator[Row]:
    """Scores of both candidates. Of errors, gibberish and KL less is better, of the rest more."""
    from trtbuild.measure.quality.record import scores_of

    old_scores = dict(scores_of(before))
    for name, new in scores_of(after):
        old = old_scores.get(name)
        if name.endswith(", baseline") or old is None or None in (old.value, old.low, new.value, new.low):
            continue
        change = _independent(old.as_json(), new.as_json())
        low_is_good = name.rpartition(": ")[2].startswith(("errors", "gibberish", "KL"))
        yield Row(name, "score", old.value, new.value, change, _verdict(change, low_is_good=low_is_good))


def _pair(before: Record, after: Record, name: str) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """Both runs' estimates of a metric; none where one lacks it, or both are 0."""
    old, new = (record.metrics.get("all", {}).get(name) for record in (before, after))
    if not old or not new or old["low"] is None or new["low"] is None:
        return
    if old["value"] or new["value"]:
        yield old, new


def _independent(old: dict[str, float], new: dict[str, float]) -> stats.Estimate:
    """The difference of two independent estimates, by Newcombe's square-and-add of their intervals."""
    value = new["value"] - old["value"]
    low = value - math.hypot(new["value"] - new["low"], old["high"] - old["value"])
    high = value + math.hypot(new["high"] - new["value"], old["value"] - old["low"])
    return stats.Estimate(value, low, high)


def _verdict(change: stats.Estimate, *, low_is_good: bool) -> Verdict:
    fell, rose = (
        change.high is not None and change.high < 0,
        change.low is not None and change.low > 0,
    )
    if not fell and not rose:
        return "no difference shown"
    return "better" if fell == low_is_good else "worse"
