"""A tritonserver's log: its end, what is added to it, and what it says about a failed start."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_LOOK_EVERY_S = 0.3
_FAILED = re.compile(r"failed to load '(?P<model>[^']+)' version \d+: (?P<why>.*)\"$")
_POLL = re.compile(r"^E\d{4} .*?\] \"?(?P<why>.*?)\"?$")


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines, each with its end."""
    with log.open(encoding="utf-8", errors="replace") as file:
        return list(deque(file, count))


def followed(log: Path, count: int) -> Iterator[str]:
    """The last lines, then what is added, without end.

    A server that is started again begins a new log: that one is read from its beginning.
    """
    file = log.open(encoding="utf-8", errors="replace")
    try:
        yield from deque(file, count)
        while True:
            time.sleep(_LOOK_EVERY_S)
            replaced = log.exists() and not os.path.samestat(log.stat(), os.fstat(file.fileno()))
            yield from file
            if replaced:
                file.close()
                file = log.open(encoding="utf-8", errors="replace")
                yield from file
    finally:
        file.close()


def tail(log: Path, lines: int = 12) -> list[str]:
    """The last lines of a log, without empty ones and table borders."""
    try:
        text = log.read_text("utf-8", errors="replace")
    except OSError:
        return []
    kept = [line.rstrip() for line in text.splitlines() if line.strip(" +-|")]
    return kept[-lines:]


def failed_models(log: Path) -> dict[str, str]:
    """Why each model did not load, by model; the first line of a Python exception, without its traceback."""
    failures: dict[str, str] = {}
    for line in _lines(log):
        match = _FAILED.search(line)
        if match:
            failures[match["model"]] = _plain(match["why"])
    return failures


def errors(log: Path) -> list[str]:
    """Messages that the server logged as errors."""
    found = [match["why"] for line in _lines(log) if (match := _POLL.match(line))]
    return [_plain(why) for why in found]


def _lines(log: Path) -> list[str]:
    try:
        return log.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _plain(why: str) -> str:
    """Without Triton's status word, the exception's class of ours, and the Python stack after it."""
    text = why.replace("\\n", "\n").split("\n\nAt:\n")[0].replace('\\"', '"').strip()
    return re.sub(
        r"^(Internal|Invalid argument|Not found|Unavailable): ((LoadRefused|ValueError): )?", "", text
    )
