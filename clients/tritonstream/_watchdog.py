"""The thread that ends silent streams of a synchronous client, started with its first stream."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol


class Watched(Protocol):
    def due(self) -> float: ...

    def expire(self, now: float) -> None: ...


class Watchdog:
    """Calls ``expire`` of each watched object when its ``due`` time (monotonic seconds) has passed.

    Due times move with every token, so nothing is scheduled per token: the thread sleeps until the earliest
    time it knows and then looks again. Who becomes due earlier than that calls ``notice``.
    """

    def __init__(self, on_tick: Callable[[float], float] | None = None) -> None:
        self._watched: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._poked = False
        self._on_tick = on_tick  # other timed work; returns when it wants to be called again
        self.wakes_at = math.inf

    def watch(self, item: Watched) -> None:
        with self._condition:
            self._watched.add(item)
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="tritonstream-watchdog", daemon=True)
                self._thread.start()

    def forget(self, item: Watched) -> None:
        with self._condition:
            self._watched.discard(item)

    def items(self) -> list[Watched]:
        with self._condition:
            return list(self._watched)

    def notice(self, due: float) -> None:
        """Something became due at this time, perhaps before the thread would look."""
        if due < self.wakes_at:
            with self._condition:
                self._poked = True
                self._condition.notify()

    def stop(self, *, wait: bool = True) -> None:
        with self._condition:
            self._stopped = True
            self._condition.notify()
            thread = self._thread
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)

    def _run(self) -> None:
        while True:
            with self._condition:
                if self._stopped:
                    return
            earliest = self._look(time.monotonic())
            with self._condition:
                if self._stopped:
                    return
                self.wakes_at = earliest
                pause = earliest - time.monotonic()
                if not self._poked and pause > 0:
                    self._condition.wait(None if pause == math.inf else pause)
                self._poked = False
                self.wakes_at = math.inf  # while it looks, anything new must be told

    def _look(self, now: float) -> float:
        """Ends what is due; returns when to look again. Holds on to nothing that it watches."""
        items = self.items()
        for item in items:
            if item.due() <= now:
                item.expire(now)
        earliest = min((item.due() for item in items), default=math.inf)
        return earliest if self._on_tick is None else min(earliest, self._on_tick(now))
