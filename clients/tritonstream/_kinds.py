"""What kind of thing a piece of text is: a time, an id, a name, …, in the ways of writing of many languages.

``\\d`` stands for the digits of every script.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_MONTHS: Final = (  # English, German, French, Spanish, Italian, Portuguese, Russian, Arabic
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?|januar|februar|märz|mai|juni|juli|oktober|dezember"
    r"|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre"
    r"|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
    r"|gennaio|febbraio|aprile|maggio|giugno|luglio|settembre|ottobre|dicembre"
    r"|janeiro|fevereiro|março|maio|junho|julho|setembro|outubro|novembro|dezembro"
    r"|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря"
    r"|يناير|فبراير|مارس|أبريل|إبريل|مايو|يونيو|يوليو|أغسطس|سبتمبر|أكتوبر|نوفمبر|ديسمبر"
)
_DAYS: Final = "mon|tue|wed|thu|fri|sat|sun"
_CLOCK: Final = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[ap]\.?m\b\.?)?(?:Z|\s?[+-]\d{2}:?\d{2}\b)?"
_NUMBER: Final = r"(?:\d{1,4}|[〇零一二三四五六七八九十元]{1,6})"
_ERA: Final = "明治|大正|昭和|平成|令和|民国|民國"
_UNIT: Final = "[年月日号號时時点點分秒년월일시분초]"
_HALF_OF_DAY: Final = "上午|下午|午前|午後|오전|오후"
_TIMES: Final = re.compile(
    rf"""\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?:[T\s]\s?{_CLOCK})?
    | \d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}(?:,?\s{_CLOCK})?
    | (?:(?:{_ERA}){_NUMBER}|\d{{4}}|[〇零一二三四五六七八九]{{4}})\s?[年년]
        (?:\s?(?:[(（][^)）\s]{{1,4}}[)）]|{_HALF_OF_DAY})?\s?(?:{_NUMBER}\s?{_UNIT}|{_CLOCK}))*
    | {_NUMBER}\s?{_UNIT}
        (?:\s?(?:[(（][^)）\s]{{1,4}}[)）]|{_HALF_OF_DAY})?\s?(?:{_NUMBER}\s?{_UNIT}|{_CLOCK}))+
    | \b(?:{_MONTHS})\b\.?\s+\d{{1,2}}\b(?:,?\s+\d{{4}}\b)?(?:,?\s+{_CLOCK})?
    | \b\d{{1,2}}\.?\s+(?:de\s+)?(?:{_MONTHS})\b\.?(?:\s+(?:de\s+)?\d{{4}}\b)?(?:,?\s+{_CLOCK})?
    | (?<![\d:]){_CLOCK}""",
    re.IGNORECASE | re.VERBOSE,
)
_NEAR_CHARS: Final = 40  # on both sides of a difference, where the rest of a time may stand

_KINDS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("uuid", re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}(?![0-9a-f])", re.I)),
    ("timestamp", _TIMES),
    # a day's name; seconds to nanoseconds since 1970, of the years 2017 to 2033
    ("timestamp", re.compile(rf"^(?:{_DAYS})[a-z]*$|^1[5-9]\d{{8}}(?:\d{{3}}){{0,3}}$", re.I)),
    (
        "id",
        re.compile(
            r"""^(?:[A-Za-z]+[_:=-])?(?:
                (?=.*\d)[0-9a-fA-F]{8,}                                    # a hash
                | [0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}                 # ULID
                | (?=.*[A-Z])(?=.*[a-z])[0-9A-Za-z]{27}                    # KSUID
                | (?=.*[a-z])(?=.*[a-z0-9_-][A-Z])[0-9A-Za-z_-]{21}        # nanoid
                | (?=.*\d)(?=.*[A-Z])(?=.*[a-z])[0-9A-Za-z_-]{16,}         # any other random one
                | \d{17,20})$                                              # snowflake
            | ^[\w-]*[_-](?=[\w]*\d)[0-9A-Za-z]{6,}$                       # req_8sd7f6a9
            """,
            re.VERBOSE,
        ),
    ),
    ("counter", re.compile(r"^[#№]?\d+$")),
    ("address", re.compile(r"@|^\d+(\.\d+){3}$|^[/~][\w./-]+$")),
    ("name", re.compile(r"^[^\W\d_a-z][\w'’.-]*(\s[^\W\d_a-z][\w'’.-]*){0,3}$")),
)


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


def time_around(text: str, start: int, end: int) -> tuple[int, int] | None:
    """``start`` and ``end``, widened to the whole of a time that is written there; None if there is none."""
    base = max(0, start - _NEAR_CHARS)
    for found in _TIMES.finditer(text[base : end + _NEAR_CHARS]):
        begin, stop = base + found.start(), base + found.end()
        if begin <= end and start <= stop:  # the one may be empty: "6" against "16"
            return min(begin, start), max(stop, end)
    return None


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
