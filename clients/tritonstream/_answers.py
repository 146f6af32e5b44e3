"""One answer of a request: bytes or token ids as they come, to text. Does no I/O."""

from __future__ import annotations

import codecs
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .errors import BrokenCharacters, ProtocolError
from .events import FinishReason

if TYPE_CHECKING:
    from .text.stops import StopMatcher

_utf8 = codecs.getincrementaldecoder("utf-8")


def _callers_level() -> int:
    """The ``stacklevel``, for a caller of this, of the first frame outside the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame, level = frame.f_back, level + 1
    return level


class Answer:
    """Text that comes as UTF-8, cut anywhere.

    A character is given out when it is whole; what is certain to be none becomes one U+FFFD.

    Attributes:
        index: which of the ``n`` answers.
        reason: why it ended, once that is known.
        tokens: how many ids were counted, 0 if ids do not come.
        stopped: a stop string that only the client looks for has ended it.
        feed: bytes → the text that they complete.
    """

    __slots__ = ("_decode", "_decoder", "_matcher", "feed", "index", "reason", "stopped", "tokens")

    def __init__(self, index: int, stops: Sequence[str] = ()) -> None:
        self.index = index
        self.reason: FinishReason | None = None
        self.tokens = 0
        self.stopped = False
        self._decoder = _utf8("replace")
        self._decode: Callable[..., str] = self._decoder.decode
        self._matcher = _matcher(stops)
        self.feed: Callable[[bytes], str] = self._whole if self._matcher is None else self._match

    def flush(self) -> str:
        """Ends the answer: what was held comes out."""
        rest = self._decode(b"", True)
        return rest if self._matcher is None else self._feed_matcher(rest) + self._matcher.flush()

    def _whole(self, data: bytes) -> str:
        """As ``_decode``, in half the time where the bytes are whole characters and none is held."""
        if self._decoder.buffer:
            return self._decode(data)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return self._decode(data)

    def _match(self, data: bytes) -> str:
        return self._feed_matcher(self._decode(data))

    def _feed_matcher(self, text: str) -> str:
        matcher = self._matcher
        assert matcher is not None
        text = matcher.feed(text)
        if matcher.matched is not None:
            self.reason, self.stopped = "stop", True
        return text


class ChunkAnswer(Answer):
    """Text of a model that decodes each response by itself; says when that broke a character."""

    __slots__ = ("_inner",)

    def __init__(self, index: int, stops: Sequence[str] = ()) -> None:
        super().__init__(index, stops)
        self._inner, self._decode = self._decode, self._told
        if self._matcher is None:
            self.feed = self._told

    def _told(self, data: bytes, final: bool = False) -> str:
        text = self._inner(data, final)
        if "\ufffd" in text:
            warnings.warn(
                "the model decodes each response by itself and broke a character: it came as U+FFFD; "
                "give the client tokenizer=FOLDER, or ask for the whole answer by generate()",
                BrokenCharacters,
                stacklevel=_callers_level(),
            )
        return text


class RepeatedAnswer(Answer):
    """Text of a model that sends all of it every time (BLS with ``accumulate_tokens``); gives out the new."""

    __slots__ = ("_seen", "_tail")

    def __init__(self, index: int, stops: Sequence[str] = ()) -> None:
        super().__init__(index, stops)
        self._seen = ""
        self._tail = ""  # U+FFFD at its end, which may yet become a character
        self.feed = self._grow

    def flush(self) -> str:
        return self._new(self._tail) + super().flush()

    def _grow(self, data: bytes) -> str:
        whole = data.decode("utf-8", "replace")
        settled = whole.rstrip("\ufffd")
        if not settled.startswith(self._seen):
            raise ProtocolError("a model with accumulate_tokens changed text that it had sent")
        new = settled[len(self._seen) :]
        self._seen, self._tail = settled, whole[len(settled) :]
        return self._new(new)

    def _new(self, text: str) -> str:
        return text if self._matcher is None else self._feed_matcher(text)


class IdAnswer(Answer):
    """Token ids of a bare engine; text as well, where the client has its tokenizer.

    Args:
        stream: ``text.TextStream`` of this answer, or None.
        end_ids: ids that end it and are no part of it.
        echo: ids of the prompt, if a whole answer begins with them.
    """

    __slots__ = ("_echo", "_end_ids", "_stream")

    def __init__(
        self, index: int, stream: Any, end_ids: frozenset[int], echo: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(index)
        self._stream = stream
        self._end_ids = end_ids
        self._echo = echo

    def take(self, ids: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        """Returns the text that these ids complete, and those of them that are part of the answer."""
        if self._echo is not None and ids[: len(self._echo)] == self._echo:
            ids = ids[len(self._echo) :]
        if self.reason is not None:
            return "", ()
        if self._end_ids:
            cut = next((at for at, id_ in enumerate(ids) if id_ in self._end_ids), None)
            if cut is not None:
                ids, self.reason = ids[:cut], "stop"
        text = ""
        if self._stream is not None:
            text, used = self._stream.push_counted(ids)
            if self._stream.stopped is not None:
                ids, self.reason, self.stopped = ids[:used], "stop", True
        self.tokens += len(ids)
        return text, ids

    def flush(self) -> str:
        return "" if self._stream is None else str(self._stream.flush())


def _matcher(stops: Sequence[str]) -> StopMatcher | None:
    if not stops:
        return None
    from .text.stops import StopMatcher

    return StopMatcher(stops)
