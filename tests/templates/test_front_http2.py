"""The front's HTTP/2 and gRPC client against a real gRPC server, and HPACK against the RFC's examples."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.front_modules import front_module

hpack = front_module("hpack")
http2 = front_module("http2")

METHOD = "/test.Echo/Stream"


class Recorder(http2.Call):  # type: ignore[misc]
    """Keeps what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[bytes] = []
        self.end: tuple[int, str] | None = None

    def on_message(self, data: bytes) -> None:
        self.messages.append(data)

    def on_end(self, status: int, details: str) -> None:
        assert self.end is None
        self.end = (status, details)


def _script(request_iterator: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    """The request says what comes back: ``sizes n…``, ``fail``, ``wait``, or an echo."""
    for request in request_iterator:
        word, _, rest = request.partition(b" ")
        if word == b"sizes":
            for index, size in enumerate(rest.split()):
                yield bytes([index % 256]) * int(size)
        elif word == b"fail":
            context.abort(grpc.StatusCode.NOT_FOUND, "no café here: 100 %\nsecond line")
        elif word == b"wait":
            left = Left(rest)
            context.add_callback(left)
            yield b"waiting"
            left.event.wait(20)
        else:
            yield request


LEFT: list[bytes] = []


class Left:
    """Notes that a call is gone."""

    def __init__(self, word: bytes) -> None:
        self._word, self.event = word, threading.Event()

    def __call__(self) -> None:
        LEFT.append(self._word)
        self.event.set()


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(_script) if details.method == METHOD else None


@contextlib.contextmanager
def serving(**options: int) -> Iterator[int]:
    server = grpc.server(
        futures.ThreadPoolExecutor(32), options=[(f"grpc.{key}", value) for key, value in options.items()]
    )
    server.add_generic_rpc_handlers((_Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


class Peer:
    """A connection over a real socket, driven by hand."""

    def __init__(self, port: int, path: str = METHOD, chance: random.Random | None = None) -> None:
        self.http = http2.Connection(f"127.0.0.1:{port}", path)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._chance = chance

    def open(self, message: bytes) -> Recorder:
        call = Recorder()
        self.http.open(call, message)
        self.flush()
        return call

    def flush(self) -> None:
        try:
            self._socket.sendall(bytes(self.http.out))
        except OSError:
            self.http.lost("closed")
        self.http.out.clear()

    def turn(self) -> None:
        size = self._chance.choice((1, 3, 9, 100, 70_000)) if self._chance else 1 << 18
        data = self._socket.recv(size)
        if not data:
            self.http.lost("closed")
            return
        self.http.receive(data)
        self.flush()

    def until_ended(self, *calls: Recorder) -> None:
        while any(call.end is None for call in calls):
            self.turn()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(max_receive_message_length=-1, max_send_message_length=-1) as number:
        yield number


@pytest.mark.parametrize("seed", range(4))
def test_messages_of_any_size_in_any_pieces(port: int, seed: int) -> None:
    chance = random.Random(seed)
    peer = Peer(port, chance=chance)
    wanted, calls = [], []
    for _ in range(20):
        sizes = [chance.choice((0, 1, 5, 100, 16_379, 16_384, 40_000)) for _ in range(chance.randrange(6))]
        wanted.append(sizes)
        calls.append(peer.open(b"sizes " + b" ".join(str(size).encode() for size in sizes)))
    peer.until_ended(*calls)
    for sizes, call in zip(wanted, calls, strict=True):
        assert call.messages == [bytes([index]) * size for index, size in enumerate(sizes)]
        assert call.end == (0, "")
    assert len(peer.http) == 0
    peer.close()


def test_a_request_larger_than_every_window_arrives(port: int) -> None:
    peer = Peer(port)
    message = b"echo " + random.Random(1).randbytes(3_000_000)  # the peer's first window is 64 KiB
    small, large = peer.open(b"first"), peer.open(message)
    peer.until_ended(small, large)
    assert (small.messages, large.messages) == ([b"first"], [message])
    peer.close()


def test_an_error_brings_its_code_and_text(port: int) -> None:
    peer = Peer(port)
    call = peer.open(b"fail")
    peer.until_ended(call)
    assert call.end == (http2.NOT_FOUND, "no café here: 100 %\nsecond line")
    peer.close()


def test_an_unknown_method_is_an_error_of_that_call(port: int) -> None:
    peer = Peer(port, "/test.Echo/Other")
    call = peer.open(b"x")
    peer.until_ended(call)
    assert call.end is not None
    assert call.end[0] == 12  # UNIMPLEMENTED
    peer.close()


def test_cancel_reaches_the_server_and_ends_one_call_only(port: int) -> None:
    peer = Peer(port)
    stays, goes = peer.open(b"wait stays"), peer.open(b"wait goes")
    while not (stays.messages and goes.messages):
        peer.turn()
    peer.http.cancel(goes)
    peer.flush()
    after = peer.open(b"echo")
    peer.until_ended(after)
    assert goes.end is None  # a cancelled call says nothing more
    while b"goes" not in LEFT:
        peer.until_ended(peer.open(b"again"))
    assert b"stays" not in LEFT
    peer.http.cancel(stays)
    peer.flush()
    peer.close()


def test_calls_wait_where_the_server_limits_them() -> None:
    with serving(max_concurrent_streams=2) as port:
        peer = Peer(port)
        peer.turn()  # its settings, which hold the limit
        calls = [peer.open(b"number %d" % index) for index in range(30)]
        assert len(peer.http) == 30
        peer.until_ended(*calls)
        assert [call.messages for call in calls] == [[b"number %d" % index] for index in range(30)]
        peer.close()


def test_a_server_that_goes_ends_every_call() -> None:
    with serving() as port:
        peer = Peer(port)
        calls = [peer.open(b"wait long") for _ in range(3)]
        while not all(call.messages for call in calls):
            peer.turn()
    peer.until_ended(*calls)
    assert all(call.end is not None and call.end[0] in (http2.UNAVAILABLE, http2.CANCELLED) for call in calls)
    assert not peer.http.usable
    peer.close()


def test_what_is_no_http2_is_told() -> None:
    connection = http2.Connection("x", METHOD)
    with pytest.raises(http2.ProtocolError, match="is this a gRPC port"):
        connection.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100)


@given(data=st.binary(max_size=200))
def test_no_input_does_more_than_end_the_connection(data: bytes) -> None:
    connection = http2.Connection("x", METHOD)
    connection.open(Recorder(), b"hello")
    # what the link takes for the end of the connection
    with contextlib.suppress(http2.ProtocolError, struct.error, IndexError):
        connection.receive(data)


@pytest.mark.parametrize(
    ("encoded", "text"),
    [  # RFC 7541, appendix C.4 and C.6
        ("8cf1e3c2e5f23a6ba0ab90f4ff", b"www.example.com"),
        ("86a8eb10649cbf", b"no-cache"),
        ("8825a849e95ba97d7f", b"custom-key"),
        ("8925a849e95bb8e8b4bf", b"custom-value"),
        ("826402", b"302"),
        ("96d07abe941054d444a8200595040b8166e082a62d1bff", b"Mon, 21 Oct 2013 20:13:21 GMT"),
    ],
)
def test_huffman_strings_of_the_rfc(encoded: str, text: bytes) -> None:
    assert hpack.decode_headers(b"\x00\x01n" + bytes.fromhex(encoded)) == {b"n": text}


def test_header_forms_of_the_rfc() -> None:
    # C.2.1 literal with indexing, C.2.2 without (indexed name), C.2.3 never indexed, C.2.4 indexed
    assert hpack.decode_headers(bytes.fromhex("400a637573746f6d2d6b65790d637573746f6d2d686561646572")) == {
        b"custom-key": b"custom-header"
    }
    assert hpack.decode_headers(bytes.fromhex("040c2f73616d706c652f70617468")) == {}
    assert hpack.decode_headers(bytes.fromhex("100870617373776f726406736563726574")) == {
        b"password": b"secret"
    }
    assert hpack.decode_headers(b"\x20\x88") == {b":status": b"200"}  # a table size, then :status 200


@pytest.mark.parametrize("broken", ["be", "00", "000561", "ff", "0001618100", "0001ff", "ffffffffffffff0f"])
def test_broken_header_blocks_are_refused(broken: str) -> None:
    with pytest.raises(hpack.HpackError):
        hpack.decode_headers(bytes.fromhex(broken))


@given(name=st.binary(min_size=1, max_size=300), value=st.binary(max_size=300))
def test_literals_come_back(name: bytes, value: bytes) -> None:
    assert hpack.decode_headers(hpack.encode_literal(name, value)) == {name: value}
