"""Two sets of answers, judged: scores by group with intervals, and the gate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trtbuild.errors import MeasureError
from trtbuild.measure import stats
from trtbuild.measure.quality import scores
from trtbuild.measure.quality.answers import Answer
from trtbuild.measure.quality.questions import Question
from trtbuild.measure.stats import Estimate

# The gate's defaults. Agreement of one step is what a 4-bit model keeps on the whole and a damaged one does
# not; the others are how much worse than the baseline a candidate may be, as a share of its requests.
GATE = {
    "next-token": 0.8,  # at least: share of places where both choose the same next token
    "gibberish": 0.02,  # at most: more answers that loop or are no text
    "errors": 0.01,  # at most: more requests that fail
    "json": 0.05,  # at most: fewer answers that adhere
    "numeric": 0.05,
    "code": 0.05,
    "needle": 0.1,
    "stable": 0.05,  # at most: fewer repeats that are the same
}


@dataclass(frozen=True)
class Case:
    """One question with both answers and what they score; a score that does not apply is missing."""

    question: Question
    before: Answer
    after: Answer
    agrees: dict[str, float] = field(default_factory=dict)  # between the two
    each: dict[str, tuple[bool, bool]] = field(default_factory=dict)  # of the baseline, of the candidate

    @property
    def badness(self) -> float:
        """For the order of the worst: what the candidate lost, then how little agrees."""
        lost = sum(old and not new for old, new in self.each.values())
        return lost + 1 - self.agrees.get("agreement", 0.0 if self.each else 1.0)


@dataclass(frozen=True)
class GateResult:
    """One threshold: the figure, the limit, whether it is kept; ``unsure``: the interval reaches over it."""

    name: str
    figure: Estimate
    limit: float
    at_least: bool

    @property
    def kept(self) -> bool:
        value = self.figure.value
        return value is None or (value >= self.limit if self.at_least else value <= self.limit)

    @property
    def unsure(self) -> bool:
        figure = self.figure
        return figure.low is not None and figure.high is not None and figure.low <= self.limit <= figure.high


@dataclass(frozen=True)
class Verdict:
    """``groups``: group → score → estimate; ``each``: score → (baseline, candidate) shares."""

    cases: tuple[Case, ...]
    groups: dict[str, dict[str, Estimate]]
    each: dict[str, tuple[Estimate, Estimate]]
    gate: tuple[GateResult, ...]

    @property
    def passed(self) -> bool:
        return all(one.kept for one in self.gate)

    def as_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "gate": [{**asdict(one), "kept": one.kept, "unsure": one.unsure} for one in self.gate],
            "groups": {
                name: {key: value.as_json() for key, value in row.items()}
                for name, row in self.groups.items()
            },
            "each": {name: [one.as_json() for one in pair] for name, pair in self.each.items()},
        }


def check_gate(changes: dict[str, float]) -> dict[str, float]:
    """The thresholds with the user's changes.

    Raises:
        MeasureError: a name that is none, or a value that is no share.
    """
    for name, value in changes.items():
        if name not in GATE:
            raise MeasureError(f"the gate has no threshold {name!r}", f"it has {', '.join(GATE)}")
        if not 0 <= value <= 1:
            raise MeasureError(f"{name}={value:g}: a threshold is a share from 0 to 1")
    return {**GATE, **changes}


def judge(
    questions: Sequence[Question],
    before: Sequence[Answer],
    after: Sequence[Answer],
    gate: dict[str, float],
) -> Verdict:
    """Scores every pair and holds the sums against the gate."""
    by_number = {
        question.number: (old, new) for question, old, new in zip(questions, before, after, strict=True)
    }
    cases = tuple(
        _case(question, old, new, by_number)
        for question, old, new in zip(questions, before, after, strict=True)
    )
    names = dict.fromkeys(case.question.group for case in cases)
    groups = {name: dict(_sums([case for case in cases if case.question.group == name])) for name in names}
    scored = dict.fromkeys(name for case in cases for name in case.each)
    each = {name: _both(cases, name) for name in scored}
    return Verdict(cases, groups, each, tuple(_gate(cases, gate)))


def _case(question: Question, old: Answer, new: Answer, by_number: dict[int, tuple[Answer, Answer]]) -> Case:
    each: dict[str, tuple[bool, bool]] = {"errors": (bool(old.error), bool(new.error))}
    if question.repeat_of is not None:
        first = by_number[question.repeat_of]
        each["stable"] = (old.text == first[0].text, new.text == first[1].text)
    if question.continues is None:
        each["gibberish"] = (scores.is_gibberish(old), scores.is_gibberish(new))
    each |= {name: (of(old), of(new)) for name, of in _expectations(question)}
    agrees: dict[str, float] = {}
    if not old.error and not new.error:
        same = scores.units(old), scores.units(new)
        agrees["agreement"] = scores.agreement(*same)
        agrees["exact"] = float(old.text == new.text)
        agrees["normalised"] = float(scores.normalised(old.text) == scores.normalised(new.text))
        place = scores.first_divergence(*same)
        agrees["first divergence"] = float(len(same[0]) if place is None else place)
        gap = scores.divergence(old, new)
        if gap is not None:
            agrees["KL"] = gap
    return Case(question, old, new, agrees, each)


def _expectations(question: Question) -> Iterator[tuple[str, Any]]:
    if question.schema is not None:
        yield "json", lambda answer: scores.is_json(answer.text, question.schema)
    if question.answer is not None:
        yield "numeric", lambda answer: scores.comes_to(answer.text, question.answer)
    if question.language is not None:
        yield "code", lambda answer: scores.parses(answer.text, question.language)
    if question.needle is not None:
        yield "needle", lambda answer: question.needle in answer.text


def _sums(cases: Sequence[Case]) -> Iterator[tuple[str, Estimate]]:
    for name in ("exact", "normalised"):
        values = [case.agrees[name] for case in cases if name in case.agrees]
        if values:
            yield name, stats.share(round(sum(values)), len(values))
    for name in ("agreement", "first divergence", "KL"):
        values = [case.agrees[name] for case in cases if name in case.agrees]
        if values:
            yield name, stats.mean(values)
    for name in dict.fromkeys(name for case in cases for name in case.each):
        pairs = [case.each[name] for case in cases if name in case.each]
        yield f"{name}, baseline", stats.share(sum(old for old, _ in pairs), len(pairs))
        yield f"{name}, candidate", stats.share(sum(new for _, new in pairs), len(pairs))


def _both(cases: Sequence[Case], name: str) -> tuple[Estimate, Estimate]:
    pairs = [case.each[name] for case in cases if name in case.each]
    old, new = (stats.share(sum(pair[side] for pair in pairs), len(pairs)) for side in (0, 1))
    return old, new


def _gate(cases: Sequence[Case], gate: dict[str, float]) -> Iterator[GateResult]:
    steps = [case.agrees["exact"] for case in cases if case.question.continues is not None and case.agrees]
    if not steps:  # chat messages cannot be continued: the first token of the answers is one step, too
        steps = [
            float(bool(case.agrees["exact"]) or case.agrees["first divergence"] > 0)
            for case in cases
            if "first divergence" in case.agrees
        ]
    agreement = stats.share(round(sum(steps)), len(steps))
    yield GateResult("next-token", agreement, gate["next-token"], at_least=True)
    for name, limit in gate.items():
        pairs = [case.each[name] for case in cases if name in case.each]
        if not pairs:
            continue
        bad_if_high = name in ("gibberish", "errors")
        change = _paired(pairs) if bad_if_high else _paired([(new, old) for old, new in pairs])
        yield GateResult(name, change, limit, at_least=False)


def _paired(pairs: Sequence[tuple[bool, bool]]) -> Estimate:
    """How much more often the second holds, of paired yes and no: difference with Wald's paired interval."""
    count = len(pairs)
    gained = sum(new and not old for old, new in pairs) / count
    lost = sum(old and not new for old, new in pairs) / count
    value = gained - lost
    half = 1.959964 * ((gained + lost - value * value) / count) ** 0.5
    return Estimate(value, max(-1.0, value - half), min(1.0, value + half))
