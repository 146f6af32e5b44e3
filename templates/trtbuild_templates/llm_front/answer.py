"""One answer: from the engine's tokens to what is sent, and how it ends. No I/O.

Everything runs in the loop's thread, except ``begin``, which comes before any token.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tritonstream.text import TextStream, TokenBytes
    from trtbuild_templates.faults import is_of_the_inside, told
else:
    from .faults import is_of_the_inside, told
    from .tritontext import TextStream, TokenBytes

from .inputs import Array, TextRequest
from .meter import Meter
from .prepare import Prepared
from .wire import Reply

STOP, LENGTH, CANCELLED, DEADLINE = "stop", "length", "cancelled", "deadline"


# The end of what trtbuild's own engines say of requests that they can never serve, or not now.
_CODE = re.compile(r" \[(UNSUPPORTED|UNAVAILABLE|INVALID_ARG)\]$")


class Then(Enum):
    """What becomes of the engine's call after one of its messages."""

    GO_ON = 0
    LET_END = 1  # the answer is complete and the engine knows: its call ends by itself
    CANCEL = 2  # the engine does not know that the answer is complete


class Failure(NamedTuple):
    """An error for the client: the name of a TritonError code, and one line.

    ``detail`` of a fault inside the server is for its log.
    """

    code: str
    message: str
    detail: object = None

    def text(self, pb_utils: Any) -> str:
        """For the client: a stream of gRPC gives an error no code before Triton 26.04. Logs the detail."""
        message = self.message if self.detail is None else told(self.message, self.detail, pb_utils)
        return f"{message} [{self.code}]"


class Chunk(NamedTuple):
    """What one response carries."""

    texts: list[str]
    ids: list[int]
    log_probs: list[float]
    reasons: list[str] | None  # one a text, in the last response only


class Answer:
    """The state of one request.

    Args:
        request: what the client asks for.
        outputs: names of the outputs that it wants.
        channel: Triton's response sender; only handed through.
        ready: called in the loop thread when there is something to send.
        meter: counts tokens and times, in the totals of the request's class.
    """

    def __init__(
        self,
        request: TextRequest,
        outputs: frozenset[str],
        channel: Any,
        ready: Callable[[Answer], None],
        meter: Meter,
    ) -> None:
        self.request = request
        self.outputs = outputs
        self.channel = channel
        self.totals = meter.of(request.traffic_class)
        self.prepared: Prepared | None = None
        self.reason: str | None = None  # set once: the answer is complete
        self.failure: Failure | None = None  # set once: instead of a reason
        self.begun = False  # a response is out
        self.closed = False  # the final response is out
        self.queued = False  # the sender has it on its list
        self.due_s = 0.0  # since when
        self.call: Any = None  # the engine's RPC, while it runs
        self.timer: Any = None  # of the deadline
        self.output_tokens = 0
        self.text_crc32 = 0  # of the text that is out: a client can tell that a response was lost or doubled
        self.extras: dict[str, Array] = {}
        self._ready = ready
        self._arrived_s = self._last_s = time.perf_counter()
        self._text: TextStream | None = None
        self._table: TokenBytes | None = None
        self._echo = ""
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._log_probs: list[float] = []
        self._sequences: dict[int, list[int]] = {}  # of several texts, by index
        self._several = request.sequences > 1
        self._wants_ids = "token_ids" in outputs
        # without text_output a response is due for ids alone
        self._due_for_ids = self._wants_ids and "text_output" not in outputs

    @property
    def complete(self) -> bool:
        """Whether the outcome is decided."""
        return self.reason is not None or self.failure is not None

    def begin(self, prepared: Prepared, table: TokenBytes) -> None:
        """The prompt is encoded; the engine's tokens come next."""
        self.prepared, self._table = prepared, table
        echo = not self.request.exclude_input
        self._echo = prepared.prompt if echo else ""
        self._text = TextStream(table, prepared.stops, continues=echo)
        self.totals.input_tokens += prepared.input_tokens
        self.totals.seen_tokens += prepared.seen_tokens

    def accept(self, reply: Reply) -> Then:
        """Takes one message of the engine."""
        if reply.error:
            if is_of_the_inside(reply.error):
                self.fail("INTERNAL", "the engine failed", reply.error)
                return Then.LET_END
            line = one_line(reply.error)
            code = _CODE.search(line)
            cause = line if code is None else line[: code.start()]
            self.fail("INTERNAL" if code is None else code[1], f"the engine refused or failed: {cause}")
            return Then.LET_END
        if self.complete:  # tokens after the end: the engine did not notice it
            return Then.CANCEL if reply.ids and reply.ids[0] and not reply.final else Then.LET_END
        if reply.extras:
            self._take_extras(reply)
        if self._several:
            return self._gather(reply)
        then = self.accept_tokens(reply.ids[0]) if reply.ids and reply.ids[0] else Then.GO_ON
        if reply.final:
            self.end_of_engine()
            return Then.LET_END
        return then

    def end_of_engine(self) -> None:
        """The engine's call ended; it gives no reason, so that it follows from the count."""
        if not self.complete:
            assert self.prepared is not None
            self.finish(LENGTH if self.output_tokens >= self.prepared.output_limit else STOP)

    def finish(self, reason: str) -> None:
        """Completes the answer with what there is of it."""
        if self.complete:
            return
        if self._text is not None and (rest := self._text.flush()):
            self._texts.append(rest)
        self.reason = reason
        self._close()

    def fail(self, code: str, message: str, detail: object = None) -> None:
        """Ends the answer with an error; see `Failure`."""
        if not self.complete:
            self.failure = Failure(code, message, detail)
            self._close()

    def lost(self, cause: object) -> None:
        """A response could not be sent: text behind a gap would be worse than an error."""
        failure = Failure("INTERNAL", "a part of the answer could not be sent", cause)
        if self.complete:
            self.failure = failure
            self._ready(self)
        else:
            self.fail(*failure)

    @property
    def has_more(self) -> bool:
        """Whether text is left that the last response did not take."""
        return bool(self._texts)

    def take(self, *, everything: bool = True) -> Chunk | None:
        """What the next response carries; None if none is due.

        Args:
            everything: all text that waits; else the oldest piece of it.
        """
        due = self._texts or (self._due_for_ids and self._ids)
        if not everything and self.request.stream and len(self._texts) > 1:
            return Chunk([self._texts.pop(0)], [], [], None)
        final = self.reason is not None
        if not final and not (self.request.stream and due):
            return None
        if final and self._several:
            texts, reasons = self._decode_sequences()
        else:
            texts, reasons = ["".join(self._texts)], [self.reason or ""]
            self._texts = []
        if self._echo:
            texts = [self._echo + text for text in texts]
            self._echo = ""
        ids, self._ids = self._ids, []
        log_probs, self._log_probs = self._log_probs, []
        return Chunk(texts, ids, log_probs, reasons if final else None)

    def accept_tokens(self, ids: list[int]) -> Then:
        """Takes tokens of the only text, at least one, of a message that is not the last."""
        prepared, text = self.prepared, self._text
        if self.complete or prepared is None or text is None:
            return Then.CANCEL
        self._time(len(ids))
        before, end = self.output_tokens, len(ids)
        if not prepared.end_ids.isdisjoint(ids):
            first = max(0, self.request.min_tokens - before)  # where end ids begin to count
            end = next((i for i in range(first, len(ids)) if ids[i] in prepared.end_ids), end)
        ended = end < len(ids)
        made, used = text.push_counted(ids[:end] if ended else ids)
        if made:
            self._texts.append(made)
        if self._wants_ids:
            self._ids.extend(ids[:used])
        stopped = text.stopped is not None
        self.output_tokens += used if stopped or not ended else used + 1
        self.totals.output_tokens += self.output_tokens - before
        if stopped or ended:
            self.finish(STOP)
            return Then.LET_END if ended and ids[end] in prepared.engine_end_ids else Then.CANCEL
        if self.output_tokens >= prepared.output_limit:
            self.finish(LENGTH)
            return Then.LET_END
        if (made or self._due_for_ids) and not self.queued and self.request.stream:
            self._ready(self)
        return Then.GO_ON

    def _time(self, count: int) -> None:
        now_s = time.perf_counter()
        if self.output_tokens == 0:
            self.totals.ttft.add(now_s - self._arrived_s)
        else:
            self.totals.itl.add((now_s - self._last_s) / count, count)
        self._last_s = now_s

    def _take_extras(self, reply: Reply) -> None:
        probs = reply.extras.pop("output_log_probs", None)
        if probs is not None and reply.ids:
            count = len(reply.ids[0])  # engines send those of the new tokens, or of all so far
            self._log_probs.extend(probs.reshape(-1)[-count:].tolist() if count else ())
        self.extras.update(reply.extras)

    def _gather(self, reply: Reply) -> Then:
        """Several texts: each is a message of its own or a beam; they are sent when all are there."""
        for beam, ids in enumerate(reply.ids):
            self._sequences.setdefault(reply.sequence + beam, []).extend(ids)
        if reply.final:
            self.end_of_engine()
            return Then.LET_END
        return Then.GO_ON

    def _decode_sequences(self) -> tuple[list[str], list[str]]:
        """The texts, and why each ended."""
        prepared, table = self.prepared, self._table
        texts, reasons = [], []
        for _, ids in sorted(self._sequences.items()):
            assert prepared is not None
            assert table is not None
            end = next((index for index, id_ in enumerate(ids) if id_ in prepared.end_ids), len(ids))
            text = TextStream(table, prepared.stops, continues=bool(self._echo))
            made, used = text.push_counted(ids[:end])
            texts.append(made + text.flush())
            ended = text.stopped is not None or end < len(ids) or len(ids) < prepared.output_limit
            reasons.append(
                (STOP if ended else LENGTH) if self.reason in (STOP, LENGTH) else self.reason or ""
            )
            self.output_tokens += used if text.stopped is not None or end == len(ids) else used + 1
            if self._wants_ids:
                self._ids.extend(ids[:used])
        return texts or [""], reasons or [self.reason or ""]

    def _close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.totals.ended(self.reason or "error", self.request.degrade_step)
        self._ready(self)


def one_line(message: str) -> str:
    """The last line of a traceback, or the first of another text."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return "the engine gave no reason"
    line = lines[-1] if any(line.startswith("Traceback") for line in lines) else lines[0]
    return line[:500]


def log_probs_array(values: list[float]) -> Array:
    """float32 [1, 1, n], as the engine shapes the log probabilities of one text."""
    return np.array([[values]], dtype=np.float32)
