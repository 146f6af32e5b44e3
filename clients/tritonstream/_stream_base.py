"""What streams of both clients share: state, leaving early, and what becomes of a failure."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from . import errors
from ._call import Call
from ._shm import registers
from ._status import is_open, parse_version, settle
from .events import Completion, Event, Origin
from .models import ModelDescription

if TYPE_CHECKING:
    from ._proto import Message

DRAIN_S = 1.0  # how long a server may take to close a stream after its final response
FACTS_S = 1.0  # how long it may take to say whether a model is ready
STOP_S = 2.0  # how long a stop request may take
_PARENTS: list[Any] = []  # RPCs that a forked child must not touch


class StreamBase:
    """State of one request.

    It is ended from outside in two ways: by the caller (``_cancelled``; the reader sees an ordinary end) or
    for a reason that the reader must see (``_verdict``: a limit, the client's close).
    """

    def __init__(self, client: Any, call: Call) -> None:
        self._client = client
        self._call = call
        self._rpc: Any = None
        self._sent: Message = None
        self._transport: Any = None  # of this attempt
        self._connected = False
        self._ready: deque[Event] = deque()
        self._cancelled = False
        self._verdict: errors.TritonStreamError | None = None
        self._finished = False
        self._lock = threading.Lock()  # who ends the request: its reader, or a thread that leaves it
        self._wake: Any = None  # an Event while it pauses between attempts
        self._draining = False
        self._aborted = False  # the RPC was cancelled

    @property
    def completion(self) -> Completion:
        """The answer so far.

        After leaving early it is settled: ``finish_reason`` is ``"cancelled"``, ``timings`` is set, and
        ``usage`` holds what was counted until then: tokens whose ids came, and a prompt that the client
        encoded itself. A count that only the model knows comes with its last response, so it is None.
        After an error ``finish_reason`` stays None.
        """
        return self._call.completion

    @property
    def origin(self) -> Origin | None:
        """Model, endpoint and degrade step that this answer comes from; None before the first pull."""
        return self._call.origin

    @property
    def model(self) -> ModelDescription | None:
        """What the model is and can do, cancelling among it; None before the first pull."""
        return self._call.description

    @property
    def request_id(self) -> str:
        """The id on the wire."""
        return self._call.request_id

    def cancel(self) -> None:
        """Stops the request. A reader gets what has arrived, then ``Finish("cancelled")``.

        May be called at any time, any number of times; ``completion`` tells what the answer then is. A forked
        child cannot stop what its parent reads: there it does nothing.
        """
        if not self._finished and not self._client._core.forked:
            self._cancelled = True
            self._abort()

    def _leave_to_parent(self) -> None:
        """In a forked child: gRPC cancels a call that is freed, so it is kept."""
        _PARENTS.append(self._rpc)
        self._finished = True

    def _refuse_reader(self) -> NoReturn:
        raise errors.UsageError(
            "this stream is already being read; a stream has one reader at a time: let it hand on what it "
            "reads, or make a stream for each"
        )

    def _end(self, error: errors.TritonStreamError) -> None:
        """Ends the request for a reason that its reader will see."""
        self._verdict = error
        self._abort()

    def _left(self) -> list[Event]:
        """Settles the answer of a request that the caller left, if it is open; returns the last events."""
        with self._lock:
            return [] if self._finished else self._call.cancelled(time.monotonic())

    def _abort(self) -> None:
        if self._rpc is not None:
            if not self._call.over:
                self._client._tell_engine(self._call)
            self._aborted = True
            self._rpc.cancel()
        if self._wake is not None:
            self._wake.set()

    def _expire(self, now: float) -> bool:
        """Ends the request if it has reached a limit; says whether it did."""
        error: errors.TritonStreamError | None
        if self._draining:
            error = errors.ProtocolError("the server did not close the stream after its final response")
        else:
            error = self._call.clock.expire(now)
        if error is not None:
            self._end(error)
        return error is not None

    def _check_wanted(self) -> None:
        if self._verdict is not None:
            raise self._verdict
        if self._cancelled:
            raise errors.ClosedError("cancelled before it was sent")

    def _take(self, message: Message) -> Event | None:
        """Reads one message; None is the end of the stream. Returns an event, further ones are ready."""
        call = self._call
        if message is None:
            self._ready.extend(call.ended(time.monotonic()))
            self._release()
            return None
        events = call.received(message, time.monotonic())
        if not call.over and len(events) == 1:
            return events[0]
        self._ready.extend(events)
        if call.over and call.stopped_early:
            self._client._tell_engine(call)
            self._drop()
            self._release()
        return None

    def _error(self, exc: BaseException) -> errors.TritonStreamError | None:
        """What a failure means; None if it is only the echo of the caller's leaving, and all is done."""
        if self._cancelled:
            self._drop()
            self._ready.extend(self._left())
            self._release()
            return None
        error = self._verdict or self._translate(exc)
        if error is None:
            self._drop()
            self._release(exc)
            raise exc
        return error

    def _translate(self, exc: BaseException) -> errors.TritonStreamError | None:
        if isinstance(exc, errors.TritonStreamError):
            return exc
        if self._transport is None or not isinstance(exc, Exception):
            return None
        translated: errors.TritonStreamError | None = self._transport.translate(
            exc, self._sent, self._connected
        )
        return translated

    def _settle(
        self, error: errors.TritonStreamError, ready: Message, metadata: Message
    ) -> errors.TritonStreamError:
        """Settles an open error by what the server answered; None where it did not."""
        reader = self._call.reader
        return settle(
            error,
            model_ready=None if ready is None else bool(ready.ready),
            server_version=() if metadata is None else parse_version(metadata.version),
            heard=reader is not None and reader.heard,
            registering=registers(self._sent),
        )

    def _fail(self, error: errors.TritonStreamError, exc: BaseException) -> float:
        """Ends the attempt; returns the pause before the next one, or raises the error."""
        self._drop()
        self._rpc, self._aborted = None, False
        if not self._call.confirmed:
            self._client._core.forget(self._call.model, error)
        _because(error, exc)
        try:
            pause = self._call.failed(error, time.monotonic())
        except errors.TritonStreamError as final:
            self._release(final)
            _because(final, exc)
            raise
        self._verdict = None
        self._client._look_after_endpoints()
        return pause

    def _drop(self) -> None:
        raise NotImplementedError

    def _release(self, error: BaseException | None = None) -> None:
        raise NotImplementedError


def open_questions(error: errors.TritonStreamError, model: str) -> list[tuple[str, dict[str, str]]]:
    """What to ask the server about an error: (method, fields of its request)."""
    return [("ModelReady", {"name": model}), ("ServerMetadata", {})] if is_open(error) else []


def _because(error: errors.TritonStreamError, cause: BaseException) -> None:
    if error.__cause__ is None and error is not cause:
        error.__cause__ = cause
