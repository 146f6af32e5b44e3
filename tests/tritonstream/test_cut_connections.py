"""A proxy that cuts connections, at any byte: a typed error in time or a whole answer, never half of one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tritonstream import Retry, Timeouts, TransportError, Unavailable
from tritonstream.testing import FakeModel


class Proxy:
    """Forwards TCP to a server. ``cut_after``: so many of its bytes get through a connection; None: all."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.cut_after: int | None = None
        self.passed = 0  # bytes from the server, of the newest connection
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def cut(self) -> None:
        """Cuts all connections now."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            self.passed = 0
            for source, sink in ((near, far), (far, near)):
                self._threads.append(
                    threading.Thread(target=self._forward, args=(source, sink, source is far))
                )
                self._threads[-1].start()

    def _forward(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        left = self.cut_after if counted else None
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                data = data if left is None else data[:left]
                sink.sendall(data)
                if counted:
                    self.passed += len(data)
                if left is not None:
                    left -= len(data)
                    if left <= 0:
                        break
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxied(serve: Any) -> Iterator[tuple[Any, Proxy]]:
    """A server and a proxy before it."""
    server = serve(llm=FakeModel(reply=[*"聪明的一天"], between_tokens_s=0.002))
    proxy = Proxy(server.url)
    yield server, proxy
    proxy.close()


def test_a_connection_that_is_cut_at_any_byte(run: Any, proxied: tuple[Any, Proxy]) -> None:
    _, proxy = proxied

    async def whole(client: Any) -> None:
        assert (await client.generate("llm", "x")).text == "聪明的一天"

    limits = Timeouts(connect_s=2, first_token_s=5, between_tokens_s=5)
    run(whole, proxy.url, timeouts=limits)
    total = proxy.passed
    assert total > 500

    async def cut(client: Any) -> bool:
        stream = client.stream("llm", "x")
        try:
            answer = await stream.result()
        except (TransportError, Unavailable) as error:  # the latter where the server is reached anew
            given.append(error.partial.text if error.partial else "")
            return False
        assert answer.text == "聪明的一天"
        return True

    given: list[str] = []  # before the cut
    ended = set()
    for proxy.cut_after in range(1, total, total // 12):
        ended.add(run(cut, proxy.url, timeouts=limits, retry=Retry(attempts=1)))
    assert False in ended
    assert all("聪明的一天".startswith(text) for text in given)


def test_after_a_cut_the_next_request_connects_anew(run: Any, proxied: tuple[Any, Proxy]) -> None:
    server, proxy = proxied

    async def body(client: Any) -> None:
        assert (await client.generate("llm", "x")).finish_reason == "stop"
        proxy.cut()  # between requests: the first to notice is tried again, or finds a new connection
        for _ in range(3):
            assert (await client.generate("llm", "x")).text == "聪明的一天"

    run(body, proxy.url, retry=Retry(attempts=5, base_wait_s=0.05))
    assert server.active() == 0
