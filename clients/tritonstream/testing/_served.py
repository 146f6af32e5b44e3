"""What the fake server remembers of a request."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Served:
    """What became of one request. ``parameters`` are the request's own, without those for Triton itself."""

    model: str
    request_id: str
    inputs: Mapping[str, Any]
    headers: Mapping[str, str]
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    sent: int = 0  # responses
    end: str = ""  # done, cancelled, stopped, failed; empty while it runs
    left: threading.Event = field(
        default_factory=threading.Event, repr=False
    )  # the client went, or asked to stop
    stopped: bool = False  # by a stop request

    def pause(self, seconds: float | None) -> None:
        """Waits, but not for somebody who is gone; None waits until then."""
        if seconds is None or seconds > 0:
            self.left.wait(seconds)
