"""What both models are asked: the user's requests, and ones that are generated.

A line of the user's file is as `load.prompts` reads it, and may say besides::

    "group": "invoices"        groups are judged apart; default: by what is expected, else "requests"
    "schema": {…}              the answer must be JSON that adheres to it; true: any JSON
    "answer": 42               the number that the answer must come to
    "language": "python"       the answer holds code that must parse (python, json)
    "max_tokens": 200
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from trtbuild.errors import MeasureError
from trtbuild.measure.load.prompts import Prompt, Sizing, read_rows, words
from trtbuild.measure.quality.schemas import check_schema

Language = Literal["json", "python"]
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
FILLS = (0.5, 0.95)  # of the longest prompt
FORCED = 4  # places in an answer at which the next token is asked for


@dataclass(frozen=True)
class Question:
    """One request to both models.

    ``continues``: the beginning of the baseline's own answer is part of the prompt and one token is asked
    for, so that a difference is of one step, not of all that follow a first one.
    """

    number: int
    group: str
    prompt: Prompt
    max_tokens: int
    schema: Any = None
    answer: float | None = None
    language: Language | None = None
    needle: str | None = None
    repeat_of: int | None = None
    continues: int | None = None  # the number of the question whose answer is continued

    @property
    def shown(self) -> str:
        """The prompt as a reader sees it."""
        if self.prompt.messages is not None:
            return "\n".join(f"{one.get('role')}: {one.get('content')}" for one in self.prompt.messages)
        return self.prompt.text or ""


def read_questions(path: Path, *, max_tokens: int, limit: int | None = None) -> list[Question]:
    """The user's questions.

    Raises:
        MeasureError: see `read_rows`; or an expectation that is none.
    """
    return [
        _question(number, prompt, row, max_tokens, path)
        for number, (prompt, row) in enumerate(read_rows(path)[:limit])
    ]


def _question(number: int, prompt: Prompt, row: dict[str, Any], max_tokens: int, path: Path) -> Question:
    answer = row.get("answer")
    if answer is not None and (isinstance(answer, bool) or not isinstance(answer, (int, float))):
        raise MeasureError(f"{path}: `answer` of request {number + 1} is {answer!r}, not a number")
    language = row.get("language")
    if language is not None and language not in get_args(Language):
        known = " and ".join(get_args(Language))
        raise MeasureError(
            f"{path}: `language` of request {number + 1} is {language!r}: {known} are what is parsed",
            "without `language`, the answers are compared with the baseline's alone",
        )
    schema = row.get("schema")
    if schema is not None and schema is not True:
        check_schema(schema, f"{path}: `schema` of request {number + 1}")
    kinds = (("schema", "json"), ("answer", "numeric"), ("language", "code"))
    by_kind = next((group for key, group in kinds if row.get(key) is not None), "requests")
    return Question(
        number=number, group=str(row.get("group") or by_kind), prompt=prompt,
        max_tokens=prompt.output_tokens or max_tokens, schema=row.get("schema"),
        answer=None if answer is None else float(answer), language=language,
    )  # fmt: skip


def repeats(questions: Sequence[Question], times: int, *, first: int) -> Iterator[Question]:
    """The first question again and again: greedy answers must not change."""
    for index in range(times):
        yield replace(questions[0], number=first + index, group="same prompt", repeat_of=questions[0].number)


def needles(longest_tokens: int, sizing: Sizing, *, first: int, seed: int = 1) -> Iterator[Question]:
    """A number hidden at several depths of a text that fills half, and nearly all, of the longest prompt."""
    number = first
    for fill in FILLS:
        for depth in DEPTHS:
            rng = random.Random(f"{seed}/{fill}/{depth}")
            secret = str(rng.randrange(10_000, 99_999))
            fact = f"The special number of the garden is {secret}."
            ask = "Question: What is the special number? Answer: The special number of the garden is"
            room = sizing.words(round(fill * longest_tokens)) - 2 * (len(fact.split()) + len(ask.split()))
            sentences = _sentences(max(room, 8), rng)
            at = round(depth * len(sentences))
            text = " ".join([*sentences[:at], fact, *sentences[at:], ask])
            yield Question(number, f"long context {fill:.0%}", Prompt(text=text), 12, needle=secret)
            number += 1


def _sentences(count: int, rng: random.Random) -> list[str]:
    made, left = [], count
    while left > 0:
        length = min(left, rng.randrange(6, 14))
        made.append(words(length, rng).capitalize() + ".")
        left -= length
    return made


def forced(questions: Sequence[Question], answers: Sequence[str], *, first: int) -> Iterator[Question]:
    """For plain prompts: what comes next after parts of the baseline's answer, one token each."""
    number = first
    for question, text in zip(questions, answers, strict=True):
        if question.prompt.text is None:
            continue
        parts = text.split(" ")
        places = sorted({round(index * len(parts) / (FORCED + 1)) for index in range(1, FORCED + 1)})
        for place in (place for place in places if 0 < place < len(parts)):
            prompt = Prompt(text=question.prompt.text + " ".join(parts[:place]))
            yield Question(number, "next token", prompt, 1, continues=question.number)
            number += 1
