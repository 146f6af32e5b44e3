"""The thread in which the front's event loop runs, and the ways into it from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from .answer import CANCELLED, DEADLINE, Answer, Failure
from .engine import Engine
from .sender import Sender
from .settings import Settings


class FrontLoop:
    """Engine and sender in one thread. Every method may be called from any thread.

    Args:
        pb_utils: Triton's Python backend module.
    """

    def __init__(self, settings: Settings, pb_utils: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._engine = Engine(settings.engine_address, settings.engine_model)
        self._sender = Sender(pb_utils, settings, self._gone)
        self._thread = threading.Thread(target=self._run, name="front-loop", daemon=True)
        self._thread.start()

    def ready(self, answer: Answer) -> None:
        """The answer has something to send; loop thread only."""
        self._sender.ready(answer)

    def watch(self, answer: Answer, limit_s: float) -> None:
        """Watches a new answer: its client, and its deadline if ``limit_s`` is above 0."""
        self._loop.call_soon_threadsafe(self._watch, answer, limit_s)

    def go_on(self, answer: Answer) -> None:
        """Sends the prepared request of an answer that is watched to the engine."""
        self._loop.call_soon_threadsafe(self._engine.start, [answer])

    def start(self, ready: Sequence[tuple[Answer, float]]) -> None:
        """Watches new answers, each with its deadline in seconds, and sends their requests to the engine."""
        if ready:
            self._loop.call_soon_threadsafe(self._start, ready)

    def fail(self, answer: Answer, failure: Failure) -> None:
        """Ends an answer whose request did not reach the engine."""
        self._loop.call_soon_threadsafe(answer.fail, *failure)

    def stop(self) -> None:
        """Ends all answers, sends that, and ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _close(self) -> None:
        self._engine.close()
        self._sender.flush()
        await asyncio.sleep(0)

    def _start(self, ready: Sequence[tuple[Answer, float]]) -> None:
        for answer, limit_s in ready:
            self._watch(answer, limit_s)
        self._engine.start([answer for answer, _ in ready])

    def _watch(self, answer: Answer, limit_s: float) -> None:
        self._sender.watch(answer)
        if limit_s > 0:
            answer.timer = self._loop.call_later(limit_s, self._end, answer, DEADLINE)

    def _gone(self, answer: Answer) -> None:
        self._end(answer, CANCELLED)

    def _end(self, answer: Answer, reason: str) -> None:
        answer.finish(reason)
        self._engine.cancel(answer)
