"""One streaming request of the asynchronous client; the twin of ``_sync_stream``."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import weakref
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING

from . import errors
from ._call import Call
from ._stream_base import DRAIN_S, StreamBase, open_questions
from .events import Completion, Event, TextDelta

if TYPE_CHECKING:
    from ._aio import AsyncClient
    from .transport import AsyncRpc


class AsyncStream(StreamBase):
    """The events of one request, as they come.

    Iterate it, or its ``text_deltas()``; use it as an async context manager, so that leaving early cancels
    the request, as does cancelling the task that reads. It has one reader at a time, in one event loop.
    """

    def __init__(self, client: AsyncClient, call: Call) -> None:
        super().__init__(client, call)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._loop: asyncio.AbstractEventLoop | None = None  # to which it belongs from its first pull on
        self._reading = False  # somebody waits for the next event

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """Waits for messages until one makes an event; opens, retries or ends the request besides.

        All in one coroutine: each further one would be gone through again for every message.
        """
        self._take_turn()
        try:
            ready, call = self._ready, self._call
            while not ready:
                if self._finished:
                    raise StopAsyncIteration
                try:
                    if call.over:
                        await self._drain()
                        continue
                    rpc = self._rpc or await self._open()
                    due = call.clock.wait(time.monotonic())
                    if due < self._timer_at:
                        self._watch(due)
                    try:
                        message = await rpc.__anext__()
                    except StopAsyncIteration:
                        message = None
                    event = self._take(message)
                    if event is not None:
                        return event
                except asyncio.CancelledError as exc:
                    if not self._cancelled and self._verdict is None:  # the reading task itself was cancelled
                        self._leave(exc)
                        raise
                    await self._recover(exc)
                except Exception as exc:
                    await self._recover(exc)
            return ready.popleft()
        finally:
            self._reading = False

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

    async def close(self) -> None:
        """Stops the request if it still runs, and frees what it holds. Nothing can be read afterwards."""
        if not self._client._core.forked:
            self._leave()
            self._ready.clear()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_finished", True):
            return
        if self._client._core.forked:
            self._leave_to_parent()
        elif self._at_home() or self._loop is None or self._loop.is_closed():
            self._leave()
        else:  # freed by the garbage collection of another thread, or between two runs of its loop
            with contextlib.suppress(RuntimeError):  # closed just now
                self._loop.call_soon_threadsafe(self._leave)

    def _leave(self, error: BaseException | None = None) -> None:
        self.cancel()
        self._left()
        self._release(error)

    def _strand(self) -> None:
        """Its loop is closed, nothing of it can be used any more: lets go of the channel, which ends it."""
        self._rpc = self._transport = None

    def _take_turn(self) -> None:
        """Begins to read.

        Raises:
            ClosedError: in a forked child, and in another event loop than the one that began.
            UsageError: somebody reads.
        """
        self._client._core.check_process()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop and not self._finished:
            how = "is closed" if self._loop.is_closed() else "is another than the running one"
            raise errors.ClosedError(f"this stream belongs to an event loop that {how}: {self._loop!r}")
        if self._reading:
            self._refuse_reader()
        self._reading = True

    def _at_home(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # none runs here
            return False

    def _abort(self) -> None:
        if self._at_home():
            super()._abort()
        elif self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed just now
                self._loop.call_soon_threadsafe(super()._abort)

    # Limits: one timer a stream, moved only when it fires too early or would fire too late.

    def _watch(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_later(
            due - time.monotonic(), _look, weakref.ref(self)
        )  # a timer that held the stream would keep a request alive that nobody reads

    def _look(self) -> None:
        self._timer, self._timer_at = None, math.inf
        if not self._finished and self._verdict is None and not self._expire(time.monotonic()):
            due = self._call.clock.due()
            if due < math.inf:
                self._watch(due)

    def _drop(self) -> None:
        if self._rpc is not None and not self._aborted:
            self._rpc.cancel()

    # The work.

    async def _open(self) -> AsyncRpc:
        call, client = self._call, self._client
        self._check_wanted()
        self._transport = transport = client._transport(call.attempt())
        client._streams.add(self)
        self._connected = await transport.connect(call.connect_s(time.monotonic()))
        model = client._core.route(await client._describe(call.model, transport, call), call.task)
        if client._core.must_load(model, call.task):  # takes a while, so not in the loop's thread
            await asyncio.to_thread(client._core.codec, model, call.task)
        sending = call.begin(model, client._core.codec(model, call.task), time.monotonic())
        for method, message in sending.before:
            self._sent = message
            await transport.call(method, message, sending.timeout_s, sending.metadata).__anext__()
        self._check_wanted()
        self._sent = sending.message
        rpc: AsyncRpc = transport.call(sending.method, sending.message, sending.timeout_s, sending.metadata)
        self._rpc = rpc
        return rpc

    async def _recover(self, exc: BaseException) -> None:
        """After a failure: the cancelled end, a pause before another attempt, or the typed error."""
        error = self._error(exc)
        if error is None:
            return
        questions = open_questions(error, self._call.model)
        if questions:
            error = self._settle(
                error, *[await self._client._ask_quietly(self._call, *one) for one in questions]
            )
        pause = self._fail(error, exc)
        if pause > 0 and not self._cancelled and self._verdict is None:
            self._wake = asyncio.Event()
            try:
                await asyncio.wait_for(self._wake.wait(), pause)
            except asyncio.TimeoutError:
                return

    async def _drain(self) -> None:
        """After the final response: sees the stream closed, so that nothing of it stays behind."""
        self._draining = True
        self._watch(time.monotonic() + DRAIN_S)
        try:
            async for extra in self._rpc:
                self._call.received(extra, time.monotonic())
        except errors.ProtocolError:
            raise
        except asyncio.CancelledError:
            if self._verdict is None and not self._cancelled:
                raise
        except Exception:  # the answer is whole; how the stream closes no longer matters
            self._drop()
        self._release()

    def _release(self, error: BaseException | None = None) -> None:
        if self._finished:
            return
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
        self._call.release()
        self._call.abandoned(error)
        self._client._streams.discard(self)


def _look(stream: weakref.ref[AsyncStream]) -> None:
    found = stream()
    if found is not None:
        found._look()
