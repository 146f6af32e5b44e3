"""Token ids of one answer, as they come, to text: table, UTF-8 and stop strings together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .stops import StopMatcher
from .tokenbytes import TokenBytes
from .utf8 import Utf8Stream


class TextStream:
    """The detokeniser of one answer.

    Args:
        table: bytes by token id.
        stops: stop strings; see ``stops`` for their exact meaning.
        continues: the answer continues a text, so that its first token is decoded as one in the middle
            (a SentencePiece answer keeps its leading space). Default: as Hugging Face decodes an answer.
    """

    __slots__ = (
        "_at_start", "_first_pending", "_matcher", "_pieces", "_size", "_spaces_to_drop", "_table", "_utf8",
    )  # fmt: skip

    def __init__(self, table: TokenBytes, stops: Iterable[str] = (), *, continues: bool = False) -> None:
        self._table = table
        self._pieces = table.pieces
        self._size = len(table.pieces)
        self._utf8 = Utf8Stream()
        stops = tuple(stop for stop in stops if stop)
        self._matcher = StopMatcher(stops) if stops else None
        self._spaces_to_drop = 0 if continues else table.leading_spaces_dropped
        self._first_pending = table.first_differs and not continues
        self._at_start = self._first_pending or self._spaces_to_drop > 0

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text, once there was one."""
        return self._matcher.matched if self._matcher else None

    def push(self, ids: Sequence[int]) -> str:
        """Returns the text that ``ids`` complete."""
        if self._at_start:
            data = self._start(ids)
        else:
            pieces, size = self._pieces, self._size
            data = b"".join([pieces[id_] for id_ in ids if 0 <= id_ < size])
        text = self._utf8.feed(data)
        return self._matcher.feed(text) if self._matcher else text

    def push_counted(self, ids: Sequence[int]) -> tuple[str, int]:
        """As ``push``, and how many of ``ids`` were used: fewer than given only where a stop was complete."""
        if self._matcher is None:
            return self.push(ids), len(ids)
        parts = []
        for used, id_ in enumerate(ids, 1):
            parts.append(self.push((id_,)))
            if self._matcher.matched is not None:
                return "".join(parts), used
        return "".join(parts), len(ids)

    def flush(self) -> str:
        """Ends the answer: gives out what was held, unless a stop ended it."""
        rest = self._utf8.flush()
        if self._matcher is None:
            return rest
        return self._matcher.feed(rest) + self._matcher.flush() if self._matcher.matched is None else ""

    def _start(self, ids: Sequence[int]) -> bytes:
        """Bytes at the beginning of the text, where the first token and leading spaces are special."""
        table, data = self._table, b""
        if self._first_pending:
            index = next((index for index, id_ in enumerate(ids) if table.is_known(id_)), None)
            if index is None:
                return b""
            data, ids = table.first_piece(ids[index]), ids[index + 1 :]
            self._first_pending = False
        data += table.join(ids)
        while self._spaces_to_drop and data.startswith(b" "):
            data = data[1:]
            self._spaces_to_drop -= 1
        if data:
            self._spaces_to_drop = 0
        self._at_start = self._spaces_to_drop > 0
        return data
