"""One streaming request of the synchronous client. What happens is decided in ``_call``; here is the I/O."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from . import errors
from ._call import Call
from .events import Completion, Event, Origin, TextDelta

if TYPE_CHECKING:
    from ._proto import Message
    from ._sync import Client
    from .transport import Rpc

DRAIN_S = 1.0  # how long a server may take to close a stream after its final response


class Stream:
    """The events of one request, as they come.

    Iterate it, or its ``text_deltas()``; use it as a context manager, so that leaving early cancels the request.
    ``cancel`` may be called from any thread, at any time, any number of times.
    """

    def __init__(self, client: Client, call: Call) -> None:
        self._client = client
        self._call = call
        self._watchdog = client._watchdog
        self._rpc: Rpc | None = None
        self._sent: Message = None
        self._ready: deque[Event] = deque()
        self._cancelled = False  # by the caller
        self._verdict: errors.TritonStreamError | None = None  # why it was ended from outside
        self._finished = False
        self._lock = threading.Lock()
        self._wake: threading.Event | None = None
        self._drain_until = math.inf

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        ready = self._ready
        while not ready:
            if self._finished:
                raise StopIteration
            self._pump()
        return ready.popleft()

    def text_deltas(self) -> Iterator[str]:
        """The text alone, of the first sequence."""
        for event in self:
            if isinstance(event, TextDelta) and event.index == 0:
                yield event.text

    def result(self) -> Completion:
        """Reads to the end and returns the whole answer."""
        for _ in self:
            pass
        return self._call.completion

    @property
    def completion(self) -> Completion:
        """The answer so far."""
        return self._call.completion

    @property
    def origin(self) -> Origin | None:
        """Model, endpoint and degrade step that this answer comes from; None before the first pull."""
        return self._call.origin

    @property
    def request_id(self) -> str:
        """The id on the wire."""
        return self._call.request_id

    def cancel(self) -> None:
        """Stops the request. A reader gets what has arrived, then ``Finish("cancelled")``."""
        if not self._finished:
            self._cancelled = True
            self._abort()

    def close(self) -> None:
        """Stops the request if it still runs, and frees what it holds. Nothing can be read afterwards."""
        self.cancel()
        self._release()
        self._ready.clear()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_finished", True):
            self.cancel()

    def _abort(self) -> None:
        rpc, wake = self._rpc, self._wake
        if rpc is not None:
            if not self._call.over:
                self._client._tell_engine(self._call)
            rpc.cancel()
        if wake is not None:
            wake.set()

    # What the watchdog calls, from its own thread.

    def due(self) -> float:
        if self._verdict is not None or self._finished:
            return math.inf
        return self._call.clock.due() if self._drain_until == math.inf else self._drain_until

    def expire(self, now: float) -> None:
        if self._drain_until < math.inf:
            self.end(errors.ProtocolError("the server did not close the stream after its final response"))
        elif error := self._call.clock.expire(now):
            self.end(error)

    def end(self, error: errors.TritonStreamError) -> None:
        """Ends the request for a reason that its reader will see."""
        self._verdict = error
        self._abort()

    # The work, in the reader's thread.

    def _pump(self) -> None:
        """Waits for one message and turns it into events; or opens, retries or ends the request."""
        call = self._call
        try:
            if call.over:
                self._drain()
                return
            rpc = self._rpc or self._open()
            due = call.clock.wait(time.monotonic())
            if due < self._watchdog.wakes_at:
                self._watchdog.notice(due)
            message = next(rpc, None)
            if message is None:
                self._ready.extend(call.ended(time.monotonic()))
                self._release()
                return
            self._ready.extend(call.received(message, time.monotonic()))
            if call.stopped_early:
                rpc.cancel()
                self._release()
        except Exception as exc:
            self._recover(exc)

    def _open(self) -> Rpc:
        call, client = self._call, self._client
        self._check_wanted()
        self._watchdog.watch(self)
        transport = client._transport(call.attempt())
        transport.connect(call.connect_s(time.monotonic()))
        model = client._describe(call.model, transport, call)
        sending = call.begin(model, client._core.codec(model, call.wish), time.monotonic())
        self._check_wanted()
        self._sent = sending.message
        self._rpc = transport.call(sending.method, sending.message, sending.timeout_s, sending.metadata)
        if (
            self._cancelled or self._verdict is not None
        ):  # since then: the other thread may have missed the RPC
            self._rpc.cancel()
        return self._rpc

    def _check_wanted(self) -> None:
        if self._verdict is not None:
            raise self._verdict
        if self._cancelled:
            raise errors.ClosedError("cancelled before it was sent")

    def _recover(self, exc: Exception) -> None:
        """After a failure: the cancelled end, a pause before another attempt, or the typed error."""
        call, now = self._call, time.monotonic()
        if self._cancelled:
            self._ready.extend(call.cancelled(now))
            self._release()
            return
        error = self._verdict or self._translate(exc)
        if error is None:
            self._release()
            raise exc
        if self._rpc is not None:
            self._rpc.cancel()
            self._rpc = None
        self._client._core.forget(call.model, error)
        try:
            pause = call.failed(error, now)
        except errors.TritonStreamError as final:
            self._release()
            if final.__cause__ is None and final is not exc:
                final.__cause__ = exc
            raise
        self._verdict = None
        self._pause(pause)

    def _translate(self, exc: Exception) -> errors.TritonStreamError | None:
        if isinstance(exc, errors.TritonStreamError):
            return exc
        endpoint = self._call.endpoint
        return self._client._transport(endpoint).translate(exc, self._sent) if endpoint is not None else None

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._wake = threading.Event()
            if not self._cancelled and self._verdict is None:
                self._wake.wait(seconds)

    def _drain(self) -> None:
        """After the final response: sees the stream closed, so that nothing of it stays behind."""
        self._drain_until = time.monotonic() + DRAIN_S
        self._watchdog.notice(self._drain_until)
        rpc = self._rpc
        try:
            for extra in rpc or ():
                self._call.received(extra, time.monotonic())
        except errors.ProtocolError:
            raise
        except Exception:
            if rpc is not None:  # the answer is whole; how the stream closes no longer matters
                rpc.cancel()
        finally:
            self._release()

    def _release(self) -> None:
        with self._lock:
            if self._finished:
                return
            self._finished = True
        self._call.release()
        self._watchdog.forget(self)
