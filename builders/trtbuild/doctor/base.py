"""What a check of `trtbuild doctor` reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "info", "warning", "error"]


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at. ``remedy`` is empty where nothing has to be done."""

    check: str
    state: State
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def gib(size_bytes: float) -> str:
    """Bytes as GiB with one decimal."""
    return f"{size_bytes / (1 << 30):.1f} GiB"


def mib(size_bytes: float) -> str:
    """Bytes as whole MiB."""
    return f"{size_bytes / (1 << 20):.0f} MiB"
