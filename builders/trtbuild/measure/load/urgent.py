"""Sends before reads: an event loop in which what has to go out overtakes what came in.

An engine sends a token for every stream at once, so that hundreds of readers are ready together; asyncio runs
them all before it looks at a timer, and a request that is due meanwhile waits 10 ms and more (P99 with 2,000
streams). Here whoever reads looks whether something is due, and what sending it schedules goes to the front.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class SendFirstLoop(asyncio.SelectorEventLoop):
    """asyncio's loop; while ``first`` is set, what is scheduled goes before what is ready."""

    first = False
    _ready: Any  # asyncio's own deque of handles, CPython 3.4 to 3.14

    def call_soon(  # type: ignore[override]  # the stub wants variadic generics, which 3.10 has not
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        if self.first:
            self._ready.appendleft(self._ready.pop())
        return handle


@contextmanager
def sending() -> Iterator[None]:
    """What is scheduled in this block goes first, on a `SendFirstLoop`."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SendFirstLoop) or loop.first:
        yield
        return
    loop.first = True
    try:
        yield
    finally:
        loop.first = False


class FirstStep(Generic[_Result]):
    """Awaits something; what its first step schedules (a client's task that sends) goes first."""

    def __init__(self, work: Awaitable[_Result]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, _Result]:
        steps = self._work.__await__()
        step: Callable[[], Any] = steps.__next__
        try:
            with sending():
                waits_for = step()
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: PERF203 - the awaiting task was cancelled, or the like
                    waits_for = steps.throw(error)
                else:
                    waits_for = steps.send(sent)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


class Schedule(Generic[_Item]):
    """Items with their times, sent by a timer, or by whoever notices first that one is due.

    Args:
        items: (seconds, item), ascending.
        send: called with both, once the time has come.
        now: the clock that the seconds are of.
    """

    def __init__(
        self,
        items: Iterator[tuple[float, _Item]],
        send: Callable[[float, _Item], None],
        now: Callable[[], float],
    ) -> None:
        self._items, self._send, self._now = items, send, now
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.due_s = 0.0  # of the next item; inf when there is none
        self._item: _Item | None = None
        self._advance()
        self._wind()

    def fire(self) -> None:
        """Sends all that is due."""
        while self.due_s <= self._now():
            due_s, item = self.due_s, self._item
            self._advance()
            self._send(due_s, item)  # type: ignore[arg-type]
        self._wind()

    def stop(self) -> None:
        """Nothing is sent any more."""
        self.due_s = math.inf
        self._wind()

    def _advance(self) -> None:
        self.due_s, self._item = next(self._items, (math.inf, None))

    def _wind(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.due_s < math.inf:
            self._timer = self._loop.call_later(max(0.0, self.due_s - self._now()), self.fire)
        elif not self.done.done():
            self.done.set_result(None)
