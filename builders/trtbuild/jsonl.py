"""Files with one JSON value a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

PROMPT_KEYS = ("prompt", "text_input", "text")  # under which a line may hold a prompt, in this order


def filled_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1.

    Only a line feed ends one: `str.splitlines` also breaks at U+2028, U+0085 and others, which a JSON string
    may hold as they are.
    """
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def parse(line: str) -> Any:
    """The value of one line.

    Raises:
        ValueError: it is not JSON, or nested more deeply than Python reads.
    """
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
