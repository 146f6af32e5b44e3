"""What became of one request. All times are seconds since the run began, on one monotonic clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

Outcome = Literal["ok", "error", "timeout", "cancelled", "refused", "unfinished"]
Phase = Literal["warmup", "measured"]
# Bounds are checked where a record is read from outside: what SQLite and the packed arrivals can hold.
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Packed = Annotated[int, Field(ge=0, lt=1 << 16)]
Seconds = Annotated[float, Field(ge=-1e9, le=1e9)]  # so neither infinite nor NaN


@dataclass(slots=True)
class RequestSample:
    """One request of a run.

    Attributes:
        number: place in the order of arrivals, from 0.
        traffic: name of its traffic class.
        model: the model that was called, as the repository names it.
        kind: ``text`` (token metrics apply) or ``vision`` (end-to-end alone).
        phase: ``warmup`` requests count in no percentile.
        intended_s: when the load wanted it sent. Latencies count from here, so that a generator or server
            that is late hides nothing (no coordinated omission). In a closed loop: when its user was free.
        sent_s: when it was handed to gRPC; None if that never happened.
        first_s: when the first response with a token (vision: the answer) arrived.
        end_s: when it was over, however it ended.
        outcome: ``refused`` is an overload answer or the end of a degrade chain; ``unfinished`` was still
            running when the run's time was over.
        prompt_tokens, output_tokens: as the server counted them; None where it does not tell.
        max_tokens: what was asked for at most; None for vision.
        prefix_tokens: of the prompt, how many it shares by design with others of its class (words asked for).
        degrade_step: 0 as asked; k: the k-th step of the degrade chain answered.
        error: type and text of the failure, empty if none.
        arrival_s: when each response arrived; parallel to ``arrival_tokens``.
        arrival_tokens: tokens in each response, counted by the ids that the server sent, or 1 a response
            where the model does not send ids.
    """

    number: Count
    traffic: str
    model: str
    kind: Literal["text", "vision"]
    phase: Phase
    intended_s: Seconds
    sent_s: Seconds | None = None
    first_s: Seconds | None = None
    end_s: Seconds | None = None
    outcome: Outcome = "unfinished"
    prompt_tokens: Count | None = None
    output_tokens: Count | None = None
    max_tokens: Count | None = None
    prefix_tokens: Count = 0
    degrade_step: Count = 0
    error: str = ""
    arrival_s: list[Seconds] = field(default_factory=list)
    arrival_tokens: list[Packed] = field(default_factory=list)

    @property
    def send_error_s(self) -> float | None:
        """How late it was sent: ``sent_s − intended_s``."""
        return None if self.sent_s is None else self.sent_s - self.intended_s

    @property
    def ttft_s(self) -> float | None:
        """Time to first token: ``first_s − intended_s``."""
        return None if self.first_s is None else self.first_s - self.intended_s

    @property
    def latency_s(self) -> float | None:
        """End to end: ``end_s − intended_s``."""
        return None if self.end_s is None else self.end_s - self.intended_s

    @property
    def waited_s(self) -> float | None:
        """How long it was waited for in vain: ``end_s − intended_s`` of a request that did not end well."""
        return None if self.outcome == "ok" else self.latency_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first: ``(last token − first token) / (n − 1)``; None for n < 2."""
        tokens = sum(self.arrival_tokens)
        if tokens < 2 or self.first_s is None:
            return None
        return (self.arrival_s[-1] - self.first_s) / (tokens - 1)

    def itl_s(self) -> Iterator[float]:
        """Inter-token latencies: a response of k tokens after a gap of g seconds gives k values g/k."""
        for before, now, count in zip(
            self.arrival_s, self.arrival_s[1:], self.arrival_tokens[1:], strict=False
        ):
            for _ in range(count):
                yield (now - before) / count
