"""JSON lines as users' files have them: traces, prompts, questions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trtbuild.errors import MeasureError
from trtbuild.jsonl import filled_lines, parse


def file_text(path: Path) -> str:
    """The text of a file, with or without a byte order mark; line ends of any kind become ``\\n``.

    Raises:
        MeasureError: it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise MeasureError(f"{path} is not UTF-8 at byte {error.start}", "save it as UTF-8") from error


def json_lines(text: str, path: Path, form: str) -> Iterator[tuple[int, Any]]:
    """One value a line, with the line's number.

    Args:
        form: how a line is to look, for the error.

    Raises:
        MeasureError: a line that is not JSON, or half of a surrogate pair, which is no text.
    """
    for number, line in filled_lines(text):
        try:
            value = parse(line)
        except ValueError as error:
            raise MeasureError(f"{path}:{number} is not JSON ({error})", f"write {form}") from error
        if "\\u" in line:
            check_text(value, f"{path}:{number}")
        yield number, value


def check_text(value: Any, place: str) -> None:
    """Refuses half of a surrogate pair, which JSON can name and neither gRPC, SQLite nor a page can hold.

    Raises:
        MeasureError: there is one.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise MeasureError(
            f"{place} holds half of a surrogate pair, which is no text",
            "write the character itself, or both halves",
        ) from error
