"""One streaming request of the asynchronous client; the twin of ``_sync_stream``."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING

from . import errors
from ._call import Call
from ._sync_stream import DRAIN_S
from .events import Completion, Event, Origin, TextDelta

if TYPE_CHECKING:
    from ._aio import AsyncClient
    from ._proto import Message
    from .transport import AsyncRpc


class AsyncStream:
    """The events of one request, as they come.

    Iterate it, or its ``text_deltas()``; use it as an async context manager, so that leaving early cancels the
    request, as does cancelling the task that reads.
    """

    def __init__(self, client: AsyncClient, call: Call) -> None:
        self._client = client
        self._call = call
        self._rpc: AsyncRpc | None = None
        self._sent: Message = None
        self._ready: deque[Event] = deque()
        self._cancelled = False  # by the caller
        self._verdict: errors.TritonStreamError | None = None  # why it was ended from outside
        self._finished = False
        self._wake: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._draining = False

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        ready = self._ready
        while not ready:
            if self._finished:
                raise StopAsyncIteration
            await self._pump()
        return ready.popleft()

    async def text_deltas(self) -> AsyncIterator[str]:
        """The text alone, of the first sequence."""
        async for event in self:
            if isinstance(event, TextDelta) and event.index == 0:
                yield event.text

    async def result(self) -> Completion:
        """Reads to the end and returns the whole answer."""
        async for _ in self:
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

    async def close(self) -> None:
        """Stops the request if it still runs, and frees what it holds. Nothing can be read afterwards."""
        self.cancel()
        self._release()
        self._ready.clear()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if not getattr(self, "_finished", True) and self._rpc is not None and self._client.loop_alive:
            self.cancel()

    def _abort(self) -> None:
        if self._rpc is not None:
            if not self._call.over:
                self._client._tell_engine(self._call)
            self._rpc.cancel()
        if self._wake is not None:
            self._wake.set()

    def end(self, error: errors.TritonStreamError) -> None:
        """Ends the request for a reason that its reader will see."""
        self._verdict = error
        self._abort()

    # Limits: one timer a stream, moved only when it fires too early or too late.

    def _watch(self, due: float) -> None:
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            loop = asyncio.get_running_loop()
            self._timer_at = due
            self._timer = loop.call_later(due - time.monotonic(), self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at = None, math.inf
        if self._finished or self._verdict is not None:
            return
        if self._draining:
            self.end(errors.ProtocolError("the server did not close the stream after its final response"))
        elif error := self._call.clock.expire(time.monotonic()):
            self.end(error)
        else:
            self._watch(self._call.clock.due())

    async def _pump(self) -> None:
        """Waits for one message and turns it into events; or opens, retries or ends the request."""
        call = self._call
        try:
            if call.over:
                await self._drain()
                return
            rpc = self._rpc or await self._open()
            due = call.clock.wait(time.monotonic())
            if due < self._timer_at:
                self._watch(due)
            try:
                message = await rpc.__anext__()
            except StopAsyncIteration:
                self._ready.extend(call.ended(time.monotonic()))
                self._release()
                return
            self._ready.extend(call.received(message, time.monotonic()))
            if call.stopped_early:
                rpc.cancel()
                self._release()
        except asyncio.CancelledError as exc:
            if not self._cancelled and self._verdict is None:  # the reading task itself was cancelled
                self.cancel()
                self._release()
                raise
            await self._recover(exc)
        except Exception as exc:
            await self._recover(exc)

    async def _open(self) -> AsyncRpc:
        call, client = self._call, self._client
        self._check_wanted()
        client._streams.add(self)
        transport = client._transport(call.attempt())
        await transport.connect(call.connect_s(time.monotonic()))
        model = await client._describe(call.model, transport, call)
        sending = call.begin(model, client._core.codec(model, call.wish), time.monotonic())
        self._check_wanted()
        self._sent = sending.message
        self._rpc = transport.call(sending.method, sending.message, sending.timeout_s, sending.metadata)
        return self._rpc

    def _check_wanted(self) -> None:
        if self._verdict is not None:
            raise self._verdict
        if self._cancelled:
            raise errors.ClosedError("cancelled before it was sent")

    async def _recover(self, exc: BaseException) -> None:
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
        await self._pause(pause)

    def _translate(self, exc: BaseException) -> errors.TritonStreamError | None:
        if isinstance(exc, errors.TritonStreamError):
            return exc
        endpoint = self._call.endpoint
        if endpoint is None or not isinstance(exc, Exception):
            return None
        return self._client._transport(endpoint).translate(exc, self._sent)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0 and not self._cancelled and self._verdict is None:
            self._wake = asyncio.Event()
            try:
                await asyncio.wait_for(self._wake.wait(), seconds)
            except asyncio.TimeoutError:
                return

    async def _drain(self) -> None:
        """After the final response: sees the stream closed, so that nothing of it stays behind."""
        self._draining = True
        self._watch(time.monotonic() + DRAIN_S)
        rpc = self._rpc
        try:
            if rpc is not None:
                async for extra in rpc:
                    self._call.received(extra, time.monotonic())
        except errors.ProtocolError:
            raise
        except (Exception, asyncio.CancelledError) as exc:
            if rpc is not None:  # the answer is whole; how the stream closes no longer matters
                rpc.cancel()
            if isinstance(exc, asyncio.CancelledError) and self._verdict is None and not self._cancelled:
                raise
        finally:
            self._release()

    def _release(self) -> None:
        if self._finished:
            return
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
        self._call.release()
        self._client._streams.discard(self)
