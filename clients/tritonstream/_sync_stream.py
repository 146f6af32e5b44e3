"""One streaming request of the synchronous client. What happens is decided in ``_call``; here is the I/O."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from . import errors
from ._call import Call
from ._stream_base import DRAIN_S, StreamBase, open_questions
from .events import Completion, Event, TextDelta

if TYPE_CHECKING:
    from ._sync import Client
    from .transport import Rpc


class Stream(StreamBase):
    """The events of one request, as they come.

    Iterate it, or its ``text_deltas()``; use it as a context manager, so that leaving early cancels the
    request. One thread reads (a second one gets ``UsageError``); ``cancel`` may be called from any.
    """

    def __init__(self, client: Client, call: Call) -> None:
        super().__init__(client, call)
        self._watchdog = client._watchdog
        self._turn = threading.Lock()  # held by the reader
        self._reading = threading.Lock()  # held while the RPC is read, so that it is not dropped meanwhile
        self._drain_until = math.inf

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        self._take_turn()
        try:
            ready = self._ready
            while not ready:
                if self._finished:
                    raise StopIteration
                event = self._pump()
                if event is not None:
                    return event
            return ready.popleft()
        finally:
            self._turn.release()

    def text_deltas(self) -> Iterator[str]:
        """The text alone, of the first sequence."""
        for event in self:
            if isinstance(event, TextDelta) and event.index == 0:
                yield event.text

    def result(self) -> Completion:
        """Reads to the end and returns the whole answer."""
        self._take_turn()
        try:
            while not self._finished:
                self._pump()
                self._ready.clear()
        finally:
            self._turn.release()
        return self._call.completion

    def close(self) -> None:
        """Stops the request if it still runs, and frees what it holds. Nothing can be read afterwards."""
        if self._client._core.forked:
            self._leave_to_parent()
            return
        self.cancel()
        self._drop()
        self._left()
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
            self.close()

    def _take_turn(self) -> None:
        self._client._core.check_process()
        if not self._turn.acquire(blocking=False):
            self._refuse_reader()

    # For the watchdog, in its own thread.

    def due(self) -> float:
        if self._verdict is not None or self._finished:
            return math.inf
        return self._drain_until if self._draining else self._call.clock.due()

    def expire(self, now: float) -> None:
        self._expire(now)

    def _drop(self) -> None:
        """Frees the RPC. After a cancel, a thread that reads it comes back at once."""
        rpc, transport = self._rpc, self._transport
        if rpc is not None and transport is not None:
            rpc.cancel()
            with self._reading:
                transport.drop(rpc)

    # The work, in the reader's thread.

    def _pump(self) -> Event | None:
        """Waits for one message and turns it into events; or opens, retries or ends the request.

        Returns an event, or None if events are ready, or there are none.
        """
        try:
            if self._call.over:
                self._drain()
                return None
            rpc = self._rpc or self._open()
            due = self._call.clock.wait(time.monotonic())
            if due < self._watchdog.wakes_at:
                self._watchdog.notice(due)
            with self._reading:
                message = next(rpc, None)
            return self._take(message)
        except Exception as exc:
            self._recover(exc)
            return None

    def _open(self) -> Rpc:
        call, client = self._call, self._client
        self._check_wanted()
        self._watchdog.watch(self)
        self._transport = transport = client._transport(call.attempt())
        self._connected = transport.connect(call.connect_s(time.monotonic()))
        model = client._core.route(client._describe(call.model, transport, call), call.task)
        sending = call.begin(model, client._core.codec(model, call.task), time.monotonic())
        for method, message in sending.before:
            self._sent = message
            next(transport.call(method, message, sending.timeout_s, sending.metadata))
        self._check_wanted()
        self._sent = sending.message
        rpc: Rpc = transport.call(sending.method, sending.message, sending.timeout_s, sending.metadata)
        self._rpc = rpc
        if (
            self._cancelled or self._verdict is not None
        ):  # since then: the other thread may have missed the RPC
            rpc.cancel()
        return rpc

    def _recover(self, exc: Exception) -> None:
        """After a failure: the cancelled end, a pause before another attempt, or the typed error."""
        error = self._error(exc)
        if error is None:
            return
        answers = [
            self._client._ask_quietly(self._call, *question)
            for question in open_questions(error, self._call.model)
        ]
        if answers:
            error = self._settle(error, *answers)
        pause = self._fail(error, exc)
        if pause > 0:
            self._wake = threading.Event()
            if not self._cancelled and self._verdict is None:
                self._wake.wait(pause)

    def _drain(self) -> None:
        """After the final response: sees the stream closed, so that nothing of it stays behind."""
        self._drain_until = time.monotonic() + DRAIN_S
        self._draining = True
        self._watchdog.notice(self._drain_until)
        try:
            for extra in self._rpc:
                self._call.received(extra, time.monotonic())
        except errors.ProtocolError:
            raise
        except Exception:  # the answer is whole; how the stream closes no longer matters
            self._drop()
        self._release()

    def _release(self, error: BaseException | None = None) -> None:
        with self._lock:
            if self._finished:
                return
            self._finished = True
        self._call.release()
        self._call.abandoned(error)
        self._watchdog.forget(self)
