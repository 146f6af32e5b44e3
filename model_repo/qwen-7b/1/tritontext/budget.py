"""What one rendering of a chat template may cost, and the checks before an operation multiplies a size."""

from __future__ import annotations

import time
from collections.abc import Sized
from typing import Any

from jinja2.exceptions import SecurityError

MAX_STEPS = 200_000  # loop steps, calls and filters of one rendering
MAX_CPU_S = 1.0  # of the rendering thread
MAX_SIZE = 16 << 20  # characters of a text, or elements of a list
MAX_TOTAL = 512 << 20  # the same, over all that one rendering makes
MAX_EXPONENT = 64
MAX_WIDTH = 4096  # of padding, indentation and formats


class TemplateCostError(SecurityError):
    """The template made too many steps or too large a value."""


class Budget:
    """Counts the cost of one rendering; every method raises TemplateCostError when it is spent."""

    __slots__ = ("_deadline", "_steps", "_total")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begins a new rendering."""
        self._steps = self._total = 0
        self._deadline = time.thread_time() + MAX_CPU_S

    def step(self) -> None:
        """Counts a loop step, a call or a filter."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TemplateCostError(f"more than {MAX_STEPS:,} steps")
        if self._steps % 64 == 0 and time.thread_time() > self._deadline:
            raise TemplateCostError(f"more than {MAX_CPU_S:g} s")

    def size(self, size: int) -> None:
        """Counts a value of ``size`` characters or elements that is made, or about to be."""
        self._total += size
        if size > MAX_SIZE or self._total > MAX_TOTAL:
            raise TemplateCostError(f"values of {max(size, self._total):,} characters or elements")

    def made(self, value: Any) -> Any:
        """Counts a value that was made, if it has a size, and returns it."""
        if isinstance(value, (str, list, tuple, dict)):
            self.size(len(value))
        return value

    def binop(self, operator: str, left: Any, right: Any) -> None:
        """Checks ``left operator right`` before it is done."""
        if operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(value, Sized) and isinstance(times, int):
                    self.size(len(value) * max(0, times))
            if isinstance(left, int) and isinstance(right, int):
                self.size(left.bit_length() + right.bit_length())
        elif operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
            self.size(len(left) + len(right))
        elif operator == "**" and (abs(right) > MAX_EXPONENT or abs(left) > 1 << 32):
            raise TemplateCostError(f"{left} ** {right}")
        elif operator == "%" and isinstance(left, str):
            check_format(left)

    def str_method(self, text: str, name: str, args: tuple[Any, ...]) -> None:
        """Checks ``text.name(*args)`` before it is called."""
        if name in ("center", "ljust", "rjust", "zfill", "expandtabs"):
            for arg in args:
                check_width(arg)
            if name == "expandtabs":
                self.size(len(text) * int(args[0] if args else 8))
        elif name == "replace" and len(args) >= 2:
            self.replace(text, *args[:2])
        elif name == "join" and args:
            self.join(text, list(args[0]))
        elif name in ("format", "format_map"):
            check_format(text)
        elif name == "translate":
            raise TemplateCostError("str.translate")

    def replace(self, text: Any, old: Any, new: Any) -> None:
        """Checks ``text.replace(old, new)``."""
        text, old, new = str(text), str(old), str(new)
        self.size(len(text) + text.count(old) * max(0, len(new) - len(old)))

    def join(self, separator: str, parts: list[Any]) -> None:
        """Checks ``separator.join(parts)``."""
        self.size(sum(len(str(part)) for part in parts) + len(separator) * len(parts))


def check_width(width: Any) -> None:
    """Raises TemplateCostError for a number that is too large a width."""
    if isinstance(width, int) and width > MAX_WIDTH:
        raise TemplateCostError(f"a width of {width!r:.20}")


def check_format(text: str) -> None:
    """Raises TemplateCostError for a format with a width above the limit, or one taken from an argument."""
    digits = depth = 0
    for char in text:
        digits = digits + 1 if char.isdigit() else 0
        depth += (char == "{") - (char == "}")
        if digits > 4 or char == "*" or depth > 1:
            raise TemplateCostError("a format with too large a width")
