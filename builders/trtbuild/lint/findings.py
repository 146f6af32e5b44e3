"""What a lint rule reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, order=True)
class Place:
    """Where it is: a path relative to the repository, and line and column from 1 (0: the file as a whole)."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in self.file)
        return f"{shown}:{self.line}" if self.line else shown


@dataclass(frozen=True)
class Edit:
    """A safe correction: ``old`` at ``place`` becomes ``new``; with line 0, ``new`` is added at the end.

    ``bare`` takes the quotes around ``old`` away, too: a boolean, an enum or a number has none.
    """

    place: Place
    old: str
    new: str
    bare: bool = False


@dataclass(frozen=True)
class Found:
    """One thing that is wrong, as a rule sees it.

    Attributes:
        found: what stands there, with its values.
        why: what that does when the server runs.
        remedy: what to write instead.
        severity: where it differs from the rule's own.
        edit: what ``--fix`` would do, where that cannot make things worse.
    """

    place: Place
    found: str
    why: str
    remedy: str
    severity: Severity | None = None
    edit: Edit | None = None


@dataclass(frozen=True)
class LintFinding:
    """A `Found` with the rule that found it; ``trtbuild rules ID`` explains the rule."""

    rule: str
    severity: Severity
    place: Place
    found: str
    why: str
    remedy: str
    edit: Edit | None = None

    def as_json(self) -> dict[str, Any]:
        """The finding as plain data, the place flattened."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "file": self.place.file,
            "line": self.place.line,
            "column": self.place.column,
            "found": self.found,
            "why": self.why,
            "remedy": self.remedy,
            "fixable": self.edit is not None,
        }


def ordered(findings: Iterable[LintFinding]) -> list[LintFinding]:
    """By file, line and rule: the order in which a person would go through them."""
    return sorted(set(findings), key=lambda item: (item.place, item.rule, item.found))
