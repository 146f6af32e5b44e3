"""Events → the answer so far. Does no I/O and keeps pieces, so that n tokens cost O(n)."""

from __future__ import annotations

from collections.abc import Iterable

from .events import (
    Choice,
    Completion,
    Event,
    Finish,
    FinishReason,
    Logprobs,
    Origin,
    TextDelta,
    Timings,
    TokenIds,
    Usage,
)


class _Sequence:
    __slots__ = ("cumulative", "ids", "logprobs", "pieces", "reason")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.cumulative: float | None = None
        self.reason: FinishReason | None = None


class Accumulator:
    """Adds events up to a ``Completion``."""

    def __init__(self) -> None:
        self._first = _Sequence()
        self._sequences = {0: self._first}
        self._usage = Usage()
        self._timings: Timings | None = None

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, TextDelta):
                (self._at(event.index) if event.index else self._first).pieces.append(event.text)
            elif isinstance(event, TokenIds):
                self._at(event.index).ids.extend(event.ids)
            elif isinstance(event, Logprobs):
                sequence = self._at(event.index)
                sequence.logprobs.extend(event.values)
                sequence.cumulative = (
                    event.cumulative if event.cumulative is not None else sequence.cumulative
                )
            elif isinstance(event, Finish):
                self._at(event.index).reason = event.reason
            elif isinstance(event, Usage):
                self._usage = event
            elif isinstance(event, Timings):
                self._timings = event

    def text(self, text: str) -> None:
        """Adds a ``TextDelta`` of the first sequence."""
        self._first.pieces.append(text)

    def _at(self, index: int) -> _Sequence:
        found = self._sequences.get(index)
        if found is None:
            found = self._sequences[index] = _Sequence()
        return found

    def completion(self, origin: Origin | None) -> Completion:
        choices = []
        for index, sequence in sorted(self._sequences.items()):
            sequence.pieces = ["".join(sequence.pieces)]
            choices.append(
                Choice(
                    index,
                    sequence.pieces[0],
                    sequence.reason,
                    tuple(sequence.ids),
                    tuple(sequence.logprobs),
                    sequence.cumulative,
                )
            )
        return Completion(tuple(choices), self._usage, self._timings, origin)
