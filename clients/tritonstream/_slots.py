"""Where two prompts part, what kind of thing parts them, and whether they go on alike behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ._kinds import canonical, kind_of, time_around

MAX_SLOT_CHARS = 96  # a difference longer than this is what the prompt is about, not a field in it
RESYNC_CHARS = 12  # equal text behind a difference, from which on the prompts count as alike again
_JOINS = frozenset("-_:./+@")  # characters inside dates, ids, addresses
# Scripts without spaces between words, whose ends are not to be seen: Thai, Lao, Khmer, kana, ideographs.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


@dataclass(frozen=True)
class Slot:
    """A difference with equal text on both sides: ``first[start:end]`` against ``second[second_start:…]``."""

    kind: str  # timestamp, uuid, id, counter, address, name, whitespace, json order, value
    start: int
    end: int
    second_start: int
    second_end: int


def slots(first: str, second: str) -> Iterator[Slot]:
    """The slots of two prompts in order, up to the place from which on they have nothing in common."""
    at, other = 0, 0
    while True:
        floor = at
        same = common_prefix(first, second, at, other)
        at, other = at + same, other + same
        if at >= len(first) or other >= len(second):
            return
        found = _json_slot(first, second, at, other, floor) or _field_slot(first, second, at, other, floor)
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


def _field_slot(first: str, second: str, at: int, other: int, floor: int) -> Slot | None:
    """The shortest pair of spans behind which both go on alike, widened to whole words and times."""
    begin = at
    while begin > floor and _in_word(first[begin - 1]) and at - begin < MAX_SLOT_CHARS:
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
                and (_in_word(first[end - 1]) or _in_word(second[second_end - 1]))  # "0" against "10"
            ):
                end, second_end = end + 1, second_end + 1
            while (
                end > begin + 1 and first[end - 1] == second[second_end - 1] and not first[end - 1].isalnum()
            ):
                end, second_end = end - 1, second_end - 1
            slot = Slot("", begin, end, other - back, second_end)
            time = _whole_time(first, second, slot, floor)
            slot = time or slot
            kind = kind_of(first[slot.start : slot.end], second[slot.second_start : slot.second_end])
            if time is not None and kind in ("value", "counter"):  # what is left of a time, such as "5分"
                kind = "timestamp"
            return replace(slot, kind=kind)
    return None


def _resynced(first: str, second: str, end: int, second_end: int) -> bool:
    ahead = first[end : end + RESYNC_CHARS]
    return bool(ahead) and len(ahead) == RESYNC_CHARS and second.startswith(ahead, second_end)


def _in_word(character: str) -> bool:
    return character in _JOINS or (character.isalnum() and not _UNSPACED.match(character))


def _whole_time(first: str, second: str, slot: Slot, floor: int) -> Slot | None:
    """The slot widened to the whole of the time that it is a part of in both texts."""
    mine = time_around(first, slot.start, slot.end)
    theirs = time_around(second, slot.second_start, slot.second_end)
    if mine is None or theirs is None:
        return None
    back = max(0, min(slot.start - max(mine[0], floor), slot.second_start - theirs[0]))
    ahead = max(0, min(mine[1] - slot.end, theirs[1] - slot.second_end))
    same = common_prefix(first, second, slot.end, slot.second_end)
    ahead = min(ahead, same)
    return Slot("", slot.start - back, slot.end + ahead, slot.second_start - back, slot.second_end + ahead)


def _json_slot(first: str, second: str, at: int, other: int, floor: int) -> Slot | None:
    """The innermost JSON value around the difference that both write in another order."""
    decoder = json.JSONDecoder()
    for begin in _openings(first, at):
        start = other - (at - begin)
        if start < 0 or begin < floor or first[begin] != second[start]:
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
