"""The engine over loopback gRPC: one event loop in one thread, one RPC per request on a shared channel.

Why not BLS: decoupled BLS responses iterated from several threads deadlock in Triton's Python backend
(python_backend r24.10 to r26.07), and its cancel came after 24.10. A gRPC call is cancelled natively.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc

from .answer import DEADLINE, Answer, Then
from .wire import METHOD, parse_reply

_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment is not for the loopback
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class EngineCalls:
    """The engine's calls. ``start``, ``cancel`` and ``stop`` may be called from any thread.

    The channel connects when the first request needs it: a front loads before its engine exists.

    Args:
        address: host:port of the server.
        model: the engine's name, for messages.
    """

    def __init__(self, address: str, model: str) -> None:
        self._address, self._model = address, model
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._method: Any = None
        self._channel: Any = None
        self._thread = threading.Thread(target=self._run, name="engine-calls", daemon=True)
        self._thread.start()

    def start(self, answer: Answer) -> None:
        """Sends a prepared request to the engine."""
        self._loop.call_soon_threadsafe(self._start, answer)

    def limit(self, answer: Answer, seconds: float) -> None:
        """Completes the answer with what there is of it after some time, and cancels its call."""
        self._loop.call_soon_threadsafe(self._limit, answer, seconds)

    def fail(self, answer: Answer, message: str, code: str) -> None:
        """Ends an answer whose request did not reach the engine."""
        self._loop.call_soon_threadsafe(answer.fail, code, message)

    def end(self, answer: Answer, reason: str) -> None:
        """Completes an answer from outside and cancels its call."""
        self._loop.call_soon_threadsafe(self._end, answer, reason)

    def stop(self) -> None:
        """Cancels all calls and ends the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in self._tasks:
            task.cancel()
        closing = [*self._tasks]
        if self._channel is not None:
            closing.append(self._loop.create_task(self._channel.close()))
        if closing:
            self._loop.run_until_complete(asyncio.wait(closing, timeout=5))
        self._loop.close()

    def _start(self, answer: Answer) -> None:
        if answer.complete:
            return
        task = self._loop.create_task(self._call(answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _limit(self, answer: Answer, seconds: float) -> None:
        if not answer.complete:
            answer.timer = self._loop.call_later(seconds, self._end, answer, DEADLINE)

    def _end(self, answer: Answer, reason: str) -> None:
        answer.finish(reason)
        if answer.call is not None:
            answer.call.cancel()

    async def _call(self, answer: Answer) -> None:
        assert answer.prepared is not None
        if self._method is None:
            self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
            self._method = self._channel.stream_stream(METHOD)
        call = self._method(iter((answer.prepared.message,)))
        answer.call = call
        try:
            while (data := await call.read()) is not _EOF:
                then = answer.accept(parse_reply(data))
                if then is Then.CANCEL:
                    call.cancel()
                    return
            if await call.code() is not grpc.StatusCode.OK:
                self._fail(answer, await call.code(), await call.details())
            answer.end_of_engine()
        except grpc.RpcError as exc:
            self._fail(answer, exc.code(), exc.details())
        except asyncio.CancelledError:
            answer.fail("CANCELLED", "the text front is stopping")
        except Exception as exc:  # one answer's fault must not end the others'
            answer.fail("INTERNAL", f"the text front failed: {type(exc).__name__}: {exc}")
            call.cancel()
        finally:
            answer.call = None

    def _fail(self, answer: Answer, code: Any, details: str | None) -> None:
        details = details or "no details"
        if code is grpc.StatusCode.CANCELLED and answer.complete:
            return
        if code is grpc.StatusCode.UNAVAILABLE:
            answer.fail(
                "UNAVAILABLE", f"the engine {self._model} at {self._address} is not reachable: {details}"
            )
        elif "unknown model" in details or code is grpc.StatusCode.NOT_FOUND:
            answer.fail("UNAVAILABLE", f"the engine {self._model} is not loaded: {details}")
        else:
            answer.fail("INTERNAL", f"the engine {self._model} failed: {details}")
