"""The comparison as one HTML page, the worst cases side by side."""

from __future__ import annotations

from typing import Any

from trtbuild.measure.quality.judge import Case, GateResult, Verdict
from trtbuild.measure.quality.scores import first_divergence
from trtbuild.measure.stats import Estimate

WORST = 20
_PROMPT_CHARS = 1200


def quality_page(data: dict[str, Any], *, title: str) -> str:
    """One self-contained page, without script, readable on paper.

    Args:
        data: of `page_data`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("trtbuild.measure.quality", ""),
        undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2").render(title=title, **data)


def page_data(verdict: Verdict, *, before: str, after: str) -> dict[str, Any]:
    """What a page shows of a verdict, as JSON."""
    shown = sorted(
        (case for case in verdict.cases if case.question.continues is None), key=lambda one: -one.badness
    )
    return {
        "before": before,
        "after": after,
        "passed": verdict.passed,
        "gate": gate_rows(verdict),
        "groups": group_rows(verdict),
        "cases": [_case(case) for case in shown[:WORST] if case.badness > 0],
        "count": len(shown),
    }


def gate_rows(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    """(threshold, figure with interval, limit, whether it is kept)."""
    return [(one.name, interval(one.figure), limit_of(one), word_of(one)) for one in verdict.gate]


def group_rows(verdict: Verdict) -> list[tuple[str, str, str]]:
    """(group, score, value with interval)."""
    rows = verdict.groups.items()
    return [(name, score, interval(value)) for name, row in rows for score, value in row.items()]


def limit_of(one: GateResult) -> str:
    """``≥ 0.75``."""
    return f"{'≥' if one.at_least else '≤'} {one.limit:g}"


def interval(value: Estimate) -> str:
    """``0.93 (0.88 to 0.97)``."""
    if value.value is None:
        return "–"
    if value.low is None or value.high is None:
        return f"{value.value:.3g}"
    return f"{value.value:.3g} ({value.low:.3g} to {value.high:.3g})"


def word_of(one: GateResult) -> str:
    """Whether a threshold is kept, and how surely."""
    return ("kept" if one.kept else "NOT KEPT") + (
        ", unsure: the interval reaches over it" if one.unsure else ""
    )


def _case(case: Case) -> dict[str, Any]:
    prompt = case.question.shown
    place = first_divergence(case.before.text.split(), case.after.text.split())
    lost = [
        name
        for name, (old, new) in case.each.items()
        if old and not new and name not in ("errors", "gibberish")
    ]
    gained = [
        name for name in ("errors", "gibberish") if case.each.get(name, (False, False)) == (False, True)
    ]
    return {
        "group": case.question.group, "number": case.question.number + 1,
        "prompt": prompt if len(prompt) <= _PROMPT_CHARS else f"{prompt[:_PROMPT_CHARS]} … ({len(prompt)})",
        "before": case.before.error or case.before.text, "after": case.after.error or case.after.text,
        "why": ", ".join([*(f"no {name}" for name in lost), *gained])
        or ("differs from word " + str(place + 1) if place is not None else "differs in blanks"),
    }  # fmt: skip
