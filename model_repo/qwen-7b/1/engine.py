"""The engine over loopback gRPC: one event loop in one thread, one RPC per request on a shared connection.

Why not BLS: decoupled BLS responses iterated from several threads deadlock in Triton's Python backend
(python_backend r24.10 to r26.07), and its cancel came after 24.10. A gRPC call is cancelled natively.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from trtbuild_templates.faults import is_of_the_inside
else:
    from .faults import is_of_the_inside

from . import http2
from .answer import Answer, Then, one_line
from .wire import METHOD, ReplyReader

_CONNECT_TIMEOUT_S = 5.0
_STOPPING = "the text front is stopping"


class _EngineCall(http2.Call):
    """The RPC of one answer."""

    __slots__ = ("_answer", "_engine", "_link", "_reader")

    def __init__(self, answer: Answer, engine: Engine, link: _Link) -> None:
        super().__init__()
        self._link = link
        self._answer = answer
        self._engine = engine
        self._reader = ReplyReader()

    def cancel(self) -> None:
        """Ends the call; the engine is told."""
        self._link.http.cancel(self)
        self._link.flush()

    def on_message(self, data: bytes) -> None:
        answer, reader = self._answer, self._reader
        token = reader.token(data)
        try:
            then = answer.accept(reader.parse(data)) if token is None else answer.accept_tokens([token])
        except Exception as exc:  # one answer's fault must not end those on the same connection
            answer.fail("INTERNAL", "the text front failed", exc)
            then = Then.CANCEL
        if then is Then.CANCEL:
            self._engine.cancel(answer)

    def on_end(self, status: int, details: str) -> None:
        self._answer.call = None
        if status != http2.OK:
            self._engine.failed(self._answer, status, details)
        self._answer.end_of_engine()


class _Link(asyncio.Protocol):
    """One connection to the server."""

    def __init__(self, authority: str) -> None:
        self.http = http2.Connection(authority, METHOD)
        self.ended = ""
        """Why the connection is over; empty while it is not."""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.flush()

    def data_received(self, data: bytes) -> None:
        try:
            self.http.receive(data)
        except (http2.ProtocolError, struct.error, IndexError) as exc:
            self.close(f"the server does not speak gRPC here: {exc}")
        else:
            self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"connection lost: {exc}" if exc else "connection closed by the server")

    def flush(self) -> None:
        """Writes what is to be written."""
        if self.http.out and self._transport is not None:
            self._transport.write(bytes(self.http.out))
            self.http.out.clear()

    def close(self, reason: str) -> None:
        """Ends every call of the connection, and it."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str) -> None:
        self.ended = self.ended or reason
        self.http.lost(self.ended)


class Engine:
    """The engine's calls. Everything here runs in the loop's thread.

    The connection is made when the first request needs it: a front loads before its engine exists.

    Args:
        address: host:port of the server.
        model: the engine's name, for messages.
    """

    def __init__(self, address: str, model: str) -> None:
        self._address, self._model = address, model
        self._links: list[_Link] = []  # the last takes new calls; one before it may still end its own
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[Answer] = []  # for the connection

    def start(self, answers: Sequence[Answer]) -> None:
        """Sends prepared requests to the engine, in one write."""
        for answer in answers:
            if answer.complete:
                continue
            if not self._links or not self._links[-1].http.usable:
                self._waiting.append(answer)
                continue
            assert answer.prepared is not None
            answer.call = _EngineCall(answer, self, self._links[-1])
            self._links[-1].http.open(answer.call, answer.prepared.message)
        if self._links:
            self._links[-1].flush()
        if self._waiting and self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def cancel(self, answer: Answer) -> None:
        """Cancels the answer's call, if it has one."""
        if answer.call is not None:
            answer.call.cancel()
            answer.call = None

    def failed(self, answer: Answer, status: int, details: str) -> None:
        """Ends an answer as its call ended."""
        inside = is_of_the_inside(details)
        details = one_line(details or f"gRPC status {status}, no details")
        if status == http2.UNAVAILABLE:
            reason = f"the engine {self._model} at {self._address} is not reachable: {details}"
            answer.fail("UNAVAILABLE", reason)
        elif status == http2.CANCELLED:
            answer.fail("CANCELLED", f"the engine's call was cancelled by the server: {details}")
        elif inside:
            answer.fail("INTERNAL", f"the engine {self._model} failed", details)
        else:
            answer.fail("INTERNAL", f"the engine {self._model} failed: {details}")

    def close(self) -> None:
        """Ends every call."""
        if self._connecting is not None:
            self._connecting.cancel()
        for link in self._links:
            link.close(_STOPPING)
        for answer in self._waiting:
            answer.fail("UNAVAILABLE", _STOPPING)

    async def _connect(self) -> None:
        host, _, port = self._address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            connecting = loop.create_connection(lambda: _Link(self._address), host.strip("[]"), int(port))
            _, link = await asyncio.wait_for(connecting, _CONNECT_TIMEOUT_S)
            self._links = [*(old for old in self._links if not old.ended), link]
            reason = link.ended
        except (OSError, ValueError, asyncio.TimeoutError) as exc:
            reason = str(exc) or type(exc).__name__
        self._connecting = None
        waiting, self._waiting = self._waiting, []
        if not reason:
            self.start(waiting)
            return
        for answer in waiting:
            self.failed(answer, http2.UNAVAILABLE, reason)
