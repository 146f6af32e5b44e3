"""What a migration says of each thing that it found: kept, changed, or left behind, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from trtbuild.lint.findings import Place

Fate = Literal["carried", "changed", "left"]


@dataclass(frozen=True, order=True)
class Note:
    """One thing of the old repository.

    Attributes:
        place: where it stands in the old repository.
        item: what it is, with its old value.
        now: what became of it; empty where nothing did.
        why: the reason, empty where the value is simply the same.
        behaviour: clients or answers notice it: told before everything else.
    """

    place: Place
    fate: Fate
    item: str
    now: str = ""
    why: str = ""
    behaviour: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "fate": self.fate,
            "file": self.place.file,
            "line": self.place.line,
            "item": self.item,
            "now": self.now,
            "why": self.why,
            "behaviour": self.behaviour,
        }


def ordered(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Each once: changes of behaviour first, then by place."""
    return tuple(sorted(set(notes), key=lambda note: (not note.behaviour, note)))
