"""Scores of answers. Pure; each says what it counts."""

from __future__ import annotations

import ast
import json
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trtbuild.measure.quality.answers import Answer
from trtbuild.measure.quality.schemas import validator_of

if TYPE_CHECKING:
    from trtbuild.measure.quality.questions import Language

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_FENCE = re.compile(r"```[\w+-]*\n(.*?)(?:```|\Z)", re.DOTALL)
LOOP_SHARE = 0.5  # of an answer that is one phrase over and over
_LOOP_WORDS = 24  # shorter answers repeat by chance
_ODD_SHARE = 0.2  # of characters that no text has


def normalised(text: str) -> str:
    """Without case, punctuation, accents' form and the width of blanks: what two wordings share."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(char if char.isalnum() else " " for char in folded)
    return " ".join(kept.split())


def units(answer: Answer) -> Sequence[Any]:
    """Token ids where there are any, else words."""
    return answer.ids or answer.text.split()


def first_divergence(before: Sequence[Any], after: Sequence[Any]) -> int | None:
    """The place of the first difference; None if there is none."""
    for place, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return place
    return None if len(before) == len(after) else min(len(before), len(after))


def agreement(before: Sequence[Any], after: Sequence[Any]) -> float:
    """Share of places with the same token: 1 for two empty answers."""
    longest = max(len(before), len(after))
    if longest == 0:
        return 1.0
    same = [old == new for old, new in zip(before, after, strict=False)]
    return same.count(True) / longest


def divergence(before: Answer, after: Answer) -> float | None:
    """Forward KL in nats a token, estimated on the tokens of the common beginning: mean of log p − log q.

    Only the log probabilities of the chosen tokens are known, and they are the likeliest ones, so that this
    is an estimate; None without log probabilities or without a common beginning.
    """
    place = first_divergence(before.ids, after.ids)
    count = len(before.ids) if place is None else place
    count = min(count, len(before.logprobs), len(after.logprobs))
    if not count:
        return None
    gaps: list[float] = [p - q for p, q in zip(before.logprobs[:count], after.logprobs[:count], strict=True)]
    mean = sum(gaps) / count
    return mean if math.isfinite(mean) else None


def is_gibberish(answer: Answer) -> bool:
    """Whether an answer loops, or is made of what no text has.

    A loop: half of a longer answer is covered by one phrase of one to eight words that follows itself. Odd:
    a fifth of replacement, private-use, unassigned or control characters.
    """
    words = answer.text.split()
    if len(words) >= _LOOP_WORDS and looped_share(words) >= LOOP_SHARE:
        return True
    if not words and len(answer.ids) >= _LOOP_WORDS and looped_share(answer.ids) >= LOOP_SHARE:
        return True
    odd = sum(
        char == "\ufffd" or (unicodedata.category(char) in ("Co", "Cn", "Cc") and char not in "\n\t\r")
        for char in answer.text
    )
    return len(answer.text) >= 8 and odd / len(answer.text) >= _ODD_SHARE


def looped_share(words: Sequence[Any]) -> float:
    """Share of the words that repeat those one period before, for the worst period of one to eight."""
    worst = 0.0
    for period in range(1, min(8, len(words) // 3) + 1):
        again = sum(words[at] == words[at - period] for at in range(period, len(words)))
        worst = max(worst, again / (len(words) - period))
    return worst


def code_of(text: str) -> str:
    """The first fenced block, else the whole text."""
    found = _FENCE.search(text)
    return found[1] if found else text


def is_json(text: str, schema: Any) -> bool:
    """Whether the answer (or its fenced block) is JSON that adheres to the schema; ``True`` is any JSON."""
    try:
        value = json.loads(code_of(text).strip())
    except ValueError:
        return False
    if schema is True:
        return True
    return validator_of(schema).is_valid(value)


def comes_to(text: str, answer: float) -> bool:
    """Whether the last number of the text is the answer, within a millionth of it."""
    numbers = _NUMBER.findall(text)
    return bool(numbers) and math.isclose(
        float(numbers[-1].replace(",", "")), answer, rel_tol=1e-6, abs_tol=1e-9
    )


def parses(text: str, language: Language) -> bool:
    """Whether the code in the answer parses. Nothing is run."""
    if language == "json":
        return is_json(text, schema=True)
    try:
        return bool(ast.parse(code_of(text)).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
