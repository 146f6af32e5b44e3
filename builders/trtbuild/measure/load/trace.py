"""Recorded traces of arrivals.

JSONL, one request a line, any of these names (the first of each is ours; the others are Mooncake's and
vLLM's)::

    at_s        seconds since the beginning; or  timestamp: milliseconds, or an ISO 8601 time
    input_tokens, input_length       length of the prompt that is generated
    output_tokens, output_length     length of the answer
    prompt      the text itself, instead of input_tokens

CSV with the header ``TIMESTAMP,ContextTokens,GeneratedTokens`` (Azure's public LLM inference traces). Times
count from the first line; lines must be in the order of time.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from trtbuild.errors import MeasureError
from trtbuild.measure.load.lines import file_text, json_lines
from trtbuild.measure.load.spec import MOST_TOKENS

_AZURE = {"TIMESTAMP": "timestamp", "ContextTokens": "input_tokens", "GeneratedTokens": "output_tokens"}


LONGEST_S = 366 * 86_400.0


@dataclass(frozen=True)
class TraceRow:
    """One recorded request; lengths are None where the trace does not say."""

    at_s: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt: str | None = None


def read_trace(path: Path) -> tuple[TraceRow, ...]:
    """Reads a trace; its first request is at 0 s.

    Raises:
        MeasureError: an empty trace, a line that cannot be read, or one that is earlier than the one before;
            named by its number.
    """
    rows: list[TraceRow] = []
    for number, data in _lines(path):
        row = _row(data, f"{path}:{number}")
        if rows and row.at_s < rows[-1].at_s:
            raise MeasureError(
                f"{path}:{number} is {rows[-1].at_s - row.at_s:g} s earlier than the line before it: "
                "a trace is replayed in the order of its lines",
                "sort it by time, or cut it where the clock was set back",
            )
        if rows and row.at_s - rows[0].at_s > LONGEST_S:
            raise MeasureError(
                f"{path}:{number} is {row.at_s - rows[0].at_s:g} s after the first line, more than a year",
                "at_s is in seconds, timestamp in milliseconds or ISO 8601: see which the trace means",
            )
        rows.append(row)
    if not rows:
        raise MeasureError(
            f"{path} holds no request", 'write one a line: {"at_s": 0.25, "input_tokens": 500}'
        )
    first_s = rows[0].at_s
    return tuple(
        TraceRow(row.at_s - first_s, row.input_tokens, row.output_tokens, row.prompt) for row in rows
    )


def _lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    text = file_text(path)
    if text.startswith("TIMESTAMP,"):
        table = csv.DictReader(text.splitlines())
        for number, row in enumerate(table, 2):
            yield number, {_AZURE.get(key, key): value for key, value in row.items()}
        return
    for number, data in json_lines(text, path, '{"at_s": 0.25, …}'):
        if not isinstance(data, dict):
            raise MeasureError(f"{path}:{number} is no JSON object", 'write {"at_s": 0.25, …}')
        yield number, data


def _row(data: Mapping[str, Any], place: str) -> TraceRow:
    prompt = data.get("prompt")
    return TraceRow(
        _time_s(data, place),
        _count(data, ("input_tokens", "input_length"), place),
        _count(data, ("output_tokens", "output_length"), place),
        prompt if isinstance(prompt, str) and prompt else None,
    )


def _time_s(data: Mapping[str, Any], place: str) -> float:
    if "at_s" in data:
        return _not_negative(_number(data["at_s"], "at_s", place), "at_s", place)
    value = data.get("timestamp")
    if value is None:
        raise MeasureError(
            f"{place} has no time", "give at_s (seconds) or timestamp (milliseconds, or ISO 8601)"
        )
    if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
        return _iso_s(value, place)
    return _not_negative(_number(value, "timestamp", place), "timestamp", place) / 1000


_ISO = re.compile(r"(?P<head>[^.]+?)(?:\.(?P<fraction>\d+))?(?P<zone>Z|[+-]\d\d:?\d\d)?")


def _iso_s(text: str, place: str) -> float:
    """Seconds; without a zone: of a clock that is never set, so that no summer time moves a request."""
    match = _ISO.fullmatch(text.strip())
    head, fraction, zone = match.groups() if match else (text, None, None)
    zone = (zone or "+00:00").replace("Z", "+00:00")
    zone = zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    try:  # Python 3.10 reads six decimals at most, and no Z; Azure writes seven
        return datetime.fromisoformat(f"{head}.{(fraction or '')[:6]:0<6}{zone}").timestamp()
    except ValueError as error:
        raise MeasureError(
            f"{place}: {text!r} is no time", "write ISO 8601, such as 2024-05-10T00:00:00"
        ) from error


def _not_negative(number: float, name: str, place: str) -> float:
    if number < 0:
        raise MeasureError(
            f"{place}: {name} is {number:g}; times do not begin before 0",
            "give seconds since the beginning of the trace as at_s",
        )
    return number


def _number(value: Any, name: str, place: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # a whole number may be too large for a float
        number = float("nan")
    if not abs(number) < float("inf"):
        raise MeasureError(f"{place}: {name} is {value!r}, not a number")
    return number


def _count(data: Mapping[str, Any], names: tuple[str, ...], place: str) -> int | None:
    for name in names:
        if data.get(name) is not None:
            count = int(_number(data[name], name, place))
            if count < 1:
                raise MeasureError(f"{place}: {name} is {count}; a request has at least one token")
            if count > MOST_TOKENS:
                raise MeasureError(
                    f"{place}: {name} is {count:,}, and no model takes more than {MOST_TOKENS:,} tokens",
                    "see whether the trace counts something else there",
                )
            return count
    return None
