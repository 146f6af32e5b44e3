"""A comparison of answers as a record, beside those of runs that were timed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trtbuild.errors import RepositoryError
from trtbuild.measure import stats
from trtbuild.measure.machine import machine_facts, versions
from trtbuild.measure.quality.judge import Verdict
from trtbuild.measure.quality.page import page_data
from trtbuild.measure.records.record import Record

KIND = "quality"


def quality_record(
    verdict: Verdict,
    *,
    before: str,
    after: str,
    model: str | None,
    settings: dict[str, Any],
    label: str,
    begun_unix_s: float,
    duration_s: float,
) -> Record:
    """The record of one comparison.

    ``load`` holds both places and the settings, ``metrics`` the verdict as JSON (``quality``) and what its
    page shows (``page``): the answers themselves are not kept, but for the worst ones.

    Args:
        settings: what else decides the figures: prompts, how many, their limits, the gate.
    """
    record = Record(
        load={"baseline": before, "candidate": after, **settings},
        label=label,
        kind=KIND,
        begun_unix_s=begun_unix_s,
        duration_s=duration_s,
        window_s=(0.0, duration_s),
    )
    record.deployment = {"models": [model] if model else [], **_deployment(after)}
    record.machine, record.versions = machine_facts(), versions()
    record.metrics = {"quality": verdict.as_json(), "page": page_data(verdict, before=before, after=after)}
    record.state = "complete"
    return record


def _deployment(place: str) -> dict[str, Any]:
    """What is known of the candidate, as in the records of runs."""
    from trtbuild.tenants import Repository

    facts: dict[str, Any] = {"address": place, "repository": None, "spec": None, "plan": None}
    if not Path(place).is_dir():
        return facts
    try:
        opened = Repository.open(Path(place))
    except RepositoryError:
        return facts
    return facts | {
        "repository": str(Path(place).resolve()),
        "spec": opened.spec.model_dump(mode="json", exclude_unset=True),
        "plan": opened.plan.model_dump(mode="json"),
    }


def in_words(record: Record) -> str:
    """``repo against other: passed``."""
    word = "passed" if record.metrics["quality"]["passed"] else "NOT passed"
    return f"{record.load['candidate']} against {record.load['baseline']}: {word}"


def scores_of(record: Record) -> Iterator[tuple[str, stats.Estimate]]:
    """(group: score, estimate) of everything that was scored."""
    for group, scores in record.metrics["quality"]["groups"].items():
        for name, value in scores.items():
            yield f"{group}: {name}", stats.Estimate(value["value"], value["low"], value["high"])
