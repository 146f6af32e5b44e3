"""The clock of one request: which limit is hit next. Pure; the caller brings the time (seconds, monotonic)."""

from __future__ import annotations

import math

from . import errors
from .events import Timings
from .options import Timeouts


class Clock:
    """Follows a request through its phases.

    A limit counts only while the reader waits: one that is slow to come back has not been kept waiting.
    ``total_s`` counts always.
    """

    __slots__ = ("_begun", "_end", "_first", "_gap", "_last", "_limits", "_responses", "_waiting", "_whole")

    def __init__(self, limits: Timeouts, now: float) -> None:
        self._limits = limits
        self._begun = now
        self._end = math.inf if limits.total_s is None else now + limits.total_s
        self._first: float | None = None
        self._last: float | None = None
        self._gap = 0.0
        self._responses = 0
        self._waiting: float | None = None
        self._whole = False

    def attempt(self, *, whole: bool) -> None:
        """A request is about to be sent. ``whole``: the answer comes in one piece, so only ``total_s`` bounds it."""
        self._whole = whole
        self._waiting = None

    def wait(self, now: float) -> float:
        """The reader waits from now on. Returns the time at which ``expire`` has something to say."""
        if self._waiting is None:
            self._waiting = now
        return self.due()

    def due(self) -> float:
        if self._waiting is None or self._whole:
            return self._end
        silence = self._limits.first_token_s if self._first is None else self._limits.between_tokens_s
        return self._end if silence is None else min(self._end, self._waiting + silence)

    def arrived(self, now: float) -> None:
        """A message with content came."""
        self._responses += 1
        if self._first is None:
            self._first = now
        elif self._waiting is not None:
            self._gap = max(self._gap, now - self._waiting)
        self._last = now
        self._waiting = None

    def expire(self, now: float) -> errors.TimeoutExceeded | None:
        """Returns the error of the limit that was reached by now, if any."""
        limits = self._limits
        if now >= self._end:
            return errors.TotalTimeout(f"the answer was not complete within total_s={limits.total_s:g}")
        if self._waiting is None or self._whole or now < self.due():
            return None
        if self._first is None:
            return errors.FirstTokenTimeout(f"no token within first_token_s={limits.first_token_s:g}")
        return errors.BetweenTokensTimeout(f"nothing for between_tokens_s={limits.between_tokens_s:g}")

    def remaining(self, now: float) -> float | None:
        """Seconds until ``total_s`` is over; None without that limit."""
        return None if self._end == math.inf else max(0.0, self._end - now)

    def timings(self, now: float, server_ns: dict[str, int]) -> Timings:
        first = None if self._first is None else self._first - self._begun
        return Timings(first, now - self._begun, self._responses, self._gap, server_ns)
