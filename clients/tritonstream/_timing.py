"""The clock of one request: which limit is hit next. The caller brings the time, in monotonic seconds."""

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

    __slots__ = (
        "_begun",
        "_between_s",
        "_end",
        "_gap_s",
        "_limits",
        "_responses",
        "_silence_s",
        "_waiting",
        "first",
    )

    def __init__(self, limits: Timeouts, now: float) -> None:
        self._limits = limits
        self._begun = now
        self._end = math.inf if limits.total_s is None else now + limits.total_s
        self._silence_s = math.inf  # the limit of the phase: until the first response, or between two
        self._between_s = math.inf
        self._waiting: float | None = None  # since when the reader waits
        self._gap_s = 0.0
        self._responses = 0
        self.first: float | None = None  # when the first content came

    def attempt(self, *, whole: bool) -> None:
        """A request is about to be sent.

        ``whole``: the answer comes in one piece, so only ``total_s`` bounds it.
        """
        first, between = self._limits.first_token_s, self._limits.between_tokens_s
        self._silence_s = math.inf if whole or first is None else first
        self._between_s = math.inf if whole or between is None else between
        self._waiting = None

    def wait(self, now: float) -> float:
        """The reader waits from now on. Returns the time at which ``expire`` will have something to say."""
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = now
        due = waiting + self._silence_s
        return due if due < self._end else self._end

    def due(self) -> float:
        return self._end if self._waiting is None else min(self._end, self._waiting + self._silence_s)

    def arrived(self, now: float) -> None:
        """A message with content came."""
        self._responses += 1
        waiting = self._waiting
        if self.first is None:
            self.first = now
            self._silence_s = self._between_s
        elif waiting is not None and now - waiting > self._gap_s:
            self._gap_s = now - waiting
        self._waiting = None

    def expire(self, now: float) -> errors.TimeoutExceeded | None:
        """Returns the error of the limit that was reached by now, if any."""
        limits = self._limits
        if now >= self._end:
            return errors.TotalTimeout(f"the answer was not complete within total_s={limits.total_s:g}")
        if now < self.due():
            return None
        if self.first is None:
            return errors.FirstTokenTimeout(f"no token within first_token_s={limits.first_token_s:g}")
        return errors.BetweenTokensTimeout(f"nothing for between_tokens_s={limits.between_tokens_s:g}")

    def remaining(self, now: float) -> float | None:
        """Seconds until ``total_s`` is over; None without that limit."""
        return None if self._end == math.inf else max(0.0, self._end - now)

    def timings(self, now: float, server_ns: dict[str, int]) -> Timings:
        first = None if self.first is None else self.first - self._begun
        return Timings(first, now - self._begun, self._responses, self._gap_s, server_ns)
