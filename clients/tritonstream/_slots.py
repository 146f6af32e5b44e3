"""Where two prompts part, what kind of thing parts them, and whether they go on alike behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_SLOT_CHARS = 96  # a difference longer than this is what the prompt is about, not a field in it
RESYNC_CHARS = 12  # equal text behind a difference, from which on the prompts count as alike again
_JOINS = frozenset("-_:./+@")  # characters inside dates, ids, addresses

_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS = "mon|tue|wed|thu|fri|sat|sun"
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("uuid", re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.I)),
    (
        "timestamp",
        re.compile(
            r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}:\d{2}(:\d{2})?"
            rf"|\b({_MONTHS})[a-z]*\.?\s+\d|\d\.?\s+({_MONTHS})|^({_DAYS})[a-z]*$|^1[5-9]\d{{8}}(\d{{3}})?$",
            re.I,
        ),
    ),
    ("id", re.compile(r"^(?=.*\d)[0-9a-f]{8,}$|^[\w-]*[_-](?=[\w]*\d)[0-9A-Za-z]{6,}$", re.I)),
    ("counter", re.compile(r"^[#№]?\d+$")),
    ("address", re.compile(r"@|^\d+(\.\d+){3}$|^[/~][\w./-]+$")),
    ("name", re.compile(r"^[^\W\d_a-z][\w'’.-]*(\s[^\W\d_a-z][\w'’.-]*){0,3}$")),
)


@dataclass(frozen=True)
class Slot:
    """A difference with equal text on both sides: ``first[start:end]`` against ``second[second_start:…]``."""

    kind: str  # timestamp, uuid, id, counter, address, name, whitespace, json order, value
    start: int
    end: int
    second_start: int
    second_end: int


def kind_of(first: str, second: str) -> str:
    """What sort of thing differs between the two texts.

    ``json order`` and ``whitespace`` mean that both say the same; ``value`` is anything else.
    """
    if first.split() == second.split() or "".join(first.split()) == "".join(second.split()):
        return "whitespace"
    if _same_json(first, second):
        return "json order"
    for kind, pattern in _KINDS:
        if pattern.search(first.strip()) and pattern.search(second.strip()):
            return kind
    return "value"


def slots(first: str, second: str) -> Iterator[Slot]:
    """The slots of two prompts in order, up to the place from which on they have nothing in common."""
    at, other = 0, 0
    while True:
        same = common_prefix(first, second, at, other)
        at, other = at + same, other + same
        if at >= len(first) or other >= len(second):
            return
        found = _json_slot(first, second, at, other) or _field_slot(first, second, at, other)
        if found is None:
            return
        yield found
        at, other = found.end, found.second_end


def common_prefix(first: str, second: str, at: int = 0, other: int = 0) -> int:
    """Number of equal characters from ``first[at]`` and ``second[other]`` on."""
    limit = min(len(first) - at, len(second) - other)
    low, step = 0, 4096
    while low < limit:  # whole stretches first: prompts are long and alike
        step = min(step, limit - low)
        if first[at + low : at + low + step] == second[other + low : other + low + step]:
            low += step
        elif step == 1:
            break
        else:
            step //= 2
    return low


def _field_slot(first: str, second: str, at: int, other: int) -> Slot | None:
    """The shortest pair of spans behind which both go on alike, widened to whole words."""
    begin = at
    while begin > 0 and _in_word(first[begin - 1]) and at - begin < MAX_SLOT_CHARS:
        begin -= 1
    back = at - begin
    for total in range(2 * MAX_SLOT_CHARS + 1):
        for taken in range(max(0, total - MAX_SLOT_CHARS), min(total, MAX_SLOT_CHARS) + 1):
            end, second_end = at + taken, other + total - taken
            if end > len(first) or second_end > len(second) or not _resynced(first, second, end, second_end):
                continue
            while (
                end < len(first)
                and second_end < len(second)
                and _in_word(first[end])
                and _in_word(first[end - 1])
            ):
                end, second_end = end + 1, second_end + 1
            while (
                end > begin + 1 and first[end - 1] == second[second_end - 1] and not first[end - 1].isalnum()
            ):
                end, second_end = end - 1, second_end - 1
            kind = kind_of(first[begin:end], second[other - back : second_end])
            return Slot(kind, begin, end, other - back, second_end)
    return None


def _resynced(first: str, second: str, end: int, second_end: int) -> bool:
    ahead = first[end : end + RESYNC_CHARS]
    return bool(ahead) and len(ahead) == RESYNC_CHARS and second.startswith(ahead, second_end)


def _in_word(character: str) -> bool:
    return character.isalnum() or character in _JOINS


def _json_slot(first: str, second: str, at: int, other: int) -> Slot | None:
    """The innermost JSON value around the difference that both write in another order."""
    decoder = json.JSONDecoder()
    for begin in _openings(first, at):
        start = other - (at - begin)
        if start < 0 or first[begin] != second[start]:
            continue
        try:
            mine, end = decoder.raw_decode(first, begin)
            theirs, second_end = decoder.raw_decode(second, start)
        except ValueError:
            continue
        if end > at and second_end > other and canonical(mine) == canonical(theirs):
            return Slot("json order", begin, end, start, second_end)
    return None


def _openings(text: str, at: int) -> Iterator[int]:
    """Places of ``{`` and ``[`` before ``at``, nearest first, a bounded number of them."""
    found, position = 0, at
    while found < 32:
        position = max(text.rfind("{", 0, position), text.rfind("[", 0, position))
        if position < 0:
            return
        found += 1
        yield position


def canonical(value: Any) -> str:
    """JSON text that is the same for every order of keys and of the items of a list."""
    return json.dumps(_sorted(value), sort_keys=True, ensure_ascii=False)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


def _same_json(first: str, second: str) -> bool:
    try:
        return canonical(json.loads(first)) == canonical(json.loads(second))
    except ValueError:
        return False
