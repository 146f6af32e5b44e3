"""HTTP/2 (RFC 9113) and gRPC framing, as a client of one method; no I/O.

Why not grpcio: its asyncio client takes about 150 µs of CPU and two thread switches for a message, this one
about 5 µs, since what one read brings holds the tokens of many streams. Measured by scripts/bench-text-path.

The peer may not use HPACK's dynamic table (SETTINGS_HEADER_TABLE_SIZE 0), so that header blocks have no
state, and gets windows of 2 GiB, so that it never waits for this side.
"""

from __future__ import annotations

import struct

from .hpack import HpackError, decode_headers, encode_literal

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY = 0, 1, 3, 4, 5, 6, 7
_WINDOW_UPDATE, _CONTINUATION = 8, 9
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_MAX_WINDOW = (1 << 31) - 1
_REFILL = 1 << 30  # bytes after which a window is filled up again
_DEFAULT_WINDOW = 65535
_MAX_FRAME = 16384  # of what is received; the default, not raised

# gRPC status codes that are told from others here
OK, CANCELLED, UNKNOWN, NOT_FOUND, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE = 0, 1, 2, 5, 8, 13, 14
_REFUSED_STREAM = 7
_MAX_REFUSALS = 1000  # a trip over the loopback each
_OF_RESET = {
    _REFUSED_STREAM: UNAVAILABLE,
    8: CANCELLED,
    11: RESOURCE_EXHAUSTED,
}  # HTTP/2 error code → gRPC status


class ProtocolError(Exception):
    """The peer does not speak HTTP/2 as it must; the connection is of no use any more."""


class Call:
    """One RPC. A subclass says what becomes of messages and of the end."""

    __slots__ = ("_body", "_partial", "_received", "_refusals", "_sent", "_window", "stream_id")

    def __init__(self) -> None:
        self.stream_id = 0  # 0: not on the wire
        self._body = b""
        self._sent = 0
        self._window = 0
        self._partial = bytearray()
        self._received = 0
        self._refusals = 0

    def on_message(self, data: bytes) -> None:
        """One message of the peer came."""
        raise NotImplementedError

    def on_end(self, status: int, details: str) -> None:
        """The call is over, with a gRPC status. Not called after ``Connection.cancel``."""
        raise NotImplementedError


class Connection:
    """One connection's state. ``out`` collects the bytes that are to be written.

    Args:
        authority: host:port, for the headers.
        path: the gRPC method's.
    """

    def __init__(self, authority: str, path: str) -> None:
        self.out = bytearray(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        settings = struct.pack(">HIHIHI", 1, 0, 2, 0, 4, _MAX_WINDOW)  # no table, no push, window
        self._frame(_SETTINGS, 0, 0, settings)
        self._frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _MAX_WINDOW - _DEFAULT_WINDOW))
        self._headers = b"".join(
            encode_literal(name, value)
            for name, value in (
                (b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()),
                (b":authority", authority.encode()), (b"te", b"trailers"),
                (b"content-type", b"application/grpc"), (b"user-agent", b"trtbuild-front"),
            )
        )  # fmt: skip
        self._calls: dict[int, Call] = {}
        self._waiting: dict[Call, None] = {}  # for a window, or for a stream that may be opened
        self._rest = b""
        self._next_id = 1
        self._window = _DEFAULT_WINDOW
        self._peer_window = _DEFAULT_WINDOW
        self._peer_frame = 16384
        self._peer_streams = 1 << 31
        self._received = 0
        self._block: tuple[int, int, bytes] | None = None  # header block that is continued
        self.usable = True
        """Whether new calls may be opened: the peer has not said goodbye, and ids are left."""

    def __len__(self) -> int:
        """How many calls are live."""
        return len(self._calls) + sum(1 for call in self._waiting if not call.stream_id)

    def open(self, call: Call, message: bytes) -> None:
        """Begins a call that sends one message and closes its side."""
        call._body = b"\x00" + struct.pack(">I", len(message)) + message
        if len(self._calls) < self._peer_streams:
            self._begin(call)
        else:
            self._waiting[call] = None

    def cancel(self, call: Call) -> None:
        """Ends a call; nothing of it is delivered any more."""
        self._waiting.pop(call, None)
        if self._calls.pop(call.stream_id, None) is not None:
            self._frame(_RST_STREAM, 0, call.stream_id, struct.pack(">I", 8))
            self._send_waiting()

    def lost(self, reason: str) -> None:
        """The connection is gone: ends every call as UNAVAILABLE."""
        self.usable = False
        calls = [*self._calls.values(), *(call for call in self._waiting if not call.stream_id)]
        self._calls.clear()
        self._waiting.clear()
        for call in calls:
            call.on_end(UNAVAILABLE, reason)

    def receive(self, data: bytes) -> None:
        """Takes what was read, and calls the calls back.

        Raises:
            ProtocolError: if it is no HTTP/2 as agreed.
        """
        if self._rest:
            data = self._rest + data
        pos, end = 0, len(data)
        while end - pos >= 9:
            stop = pos + 9 + (data[pos] << 16 | data[pos + 1] << 8 | data[pos + 2])
            if stop > end:
                if stop - pos > _MAX_FRAME + 9:
                    raise ProtocolError("a frame is larger than agreed; is this a gRPC port?")
                break
            kind = data[pos + 3]
            stream_id = int.from_bytes(data[pos + 5 : pos + 9], "big") & _MAX_WINDOW
            if kind == _DATA:
                self._on_data(stream_id, data[pos + 4], data, pos + 9, stop)
            else:
                self._on_other(kind, data[pos + 4], stream_id, data[pos + 9 : stop])
            pos = stop
        self._rest = data[pos:]

    def _begin(self, call: Call) -> None:
        call.stream_id = self._next_id
        self._next_id += 2
        self.usable = self.usable and self._next_id < _MAX_WINDOW
        call._window = self._peer_window
        self._calls[call.stream_id] = call
        self._frame(_HEADERS, _END_HEADERS, call.stream_id, self._headers)
        self._send(call)

    def _send(self, call: Call) -> None:
        """Sends of the call's message what windows allow."""
        body = call._body
        while call._sent < len(body):
            size = min(len(body) - call._sent, self._peer_frame, self._window, call._window)
            if size <= 0:
                self._waiting[call] = None
                return
            last = call._sent + size == len(body)
            chunk = body[call._sent : call._sent + size]
            self._frame(_DATA, _END_STREAM if last else 0, call.stream_id, chunk)
            call._sent += size
            call._window -= size
            self._window -= size
        self._waiting.pop(call, None)

    def _send_waiting(self) -> None:
        for call in list(self._waiting):
            if call.stream_id:
                self._send(call)
            elif len(self._calls) < self._peer_streams:
                del self._waiting[call]
                self._begin(call)

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        self.out += (
            struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream_id) + payload
        )

    def _on_data(self, stream_id: int, flags: int, data: bytes, pos: int, stop: int) -> None:
        self._received += stop - pos
        if self._received >= _REFILL:
            self._frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", self._received))
            self._received = 0
        call = self._calls.get(stream_id)
        if call is None:
            return  # cancelled
        call._received += stop - pos
        if call._received >= _REFILL:
            self._frame(_WINDOW_UPDATE, 0, stream_id, struct.pack(">I", call._received))
            call._received = 0
        if flags & _PADDED:
            stop -= data[pos]
            pos += 1
        if not call._partial and stop - pos >= 5:
            whole = pos + 5 + int.from_bytes(data[pos + 1 : pos + 5], "big")
            if whole == stop and data[pos] == 0:  # as a rule: one frame, one message
                call.on_message(data[pos + 5 : stop])
                pos = stop
        if pos < stop:
            call._partial += data[pos:stop]
            self._deliver(call)
        if flags & _END_STREAM:
            self._end(call, UNKNOWN, "the server ended the call without a status")

    def _deliver(self, call: Call) -> None:
        """Gives out the whole messages of what has been collected."""
        partial = call._partial
        while len(partial) >= 5 and call.stream_id in self._calls:
            if partial[0] != 0:
                self.cancel(call)
                call.on_end(INTERNAL, "the server compressed a message, which was not agreed")
                return
            whole = 5 + int.from_bytes(partial[1:5], "big")
            if len(partial) < whole:
                return
            message = bytes(partial[5:whole])
            del partial[:whole]
            call.on_message(message)

    def _on_other(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == _HEADERS:
            if flags & _PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            if flags & _PRIORITY:
                payload = payload[5:]
            self._on_headers(stream_id, flags, payload)
        elif kind == _CONTINUATION:
            if self._block is None or self._block[0] != stream_id:
                raise ProtocolError("a continuation without its headers")
            _, first_flags, begun = self._block
            self._on_headers(stream_id, first_flags | flags & _END_HEADERS, begun + payload)
        elif kind == _RST_STREAM:
            (code,) = struct.unpack(">I", payload)
            if (call := self._calls.get(stream_id)) is not None:
                self._on_reset(call, code)
        elif kind == _SETTINGS:
            if not flags & _ACK:
                self._on_settings(payload)
        elif kind == _PING:
            if not flags & _ACK:
                self._frame(_PING, _ACK, 0, payload)
        elif kind == _WINDOW_UPDATE:
            (added,) = struct.unpack(">I", payload)
            if stream_id == 0:
                self._window += added
            elif (call := self._calls.get(stream_id)) is not None:
                call._window += added
            self._send_waiting()
        elif kind == _GOAWAY:
            self._on_goaway(struct.unpack(">II", payload[:8])[0] & _MAX_WINDOW, payload[8:])
        elif kind == _PUSH_PROMISE:
            raise ProtocolError("a push, which was not agreed")

    def _on_headers(self, stream_id: int, flags: int, block: bytes) -> None:
        if not flags & _END_HEADERS:
            self._block = (stream_id, flags, block)
            return
        self._block = None
        call = self._calls.get(stream_id)
        if call is None or not flags & _END_STREAM:
            return  # initial headers say nothing that is needed
        try:
            headers = decode_headers(block)
        except HpackError as exc:
            raise ProtocolError(str(exc)) from None
        status = headers.get(b"grpc-status")
        if status is None or not status.isdigit():
            http = headers.get(b":status", b"none").decode("latin-1")
            self._end(call, UNKNOWN, f"the server gave no gRPC status (HTTP status {http})")
        else:
            self._end(call, int(status), _percent_decode(headers.get(b"grpc-message", b"")))

    def _on_reset(self, call: Call, code: int) -> None:
        if code == _REFUSED_STREAM and call._refusals < _MAX_REFUSALS:
            # the server did nothing for it: its limit counts streams that have just ended for a moment longer
            del self._calls[call.stream_id]
            call.stream_id, call._sent = 0, 0
            call._refusals += 1
            self._waiting[call] = None
            self._send_waiting()
        else:
            self._end(call, _OF_RESET.get(code, INTERNAL), f"the server reset the call (code {code})")

    def _on_settings(self, payload: bytes) -> None:
        for key, value in struct.iter_unpack(">HI", payload):
            if key == 3:
                self._peer_streams = value
            elif key == 4:
                for call in self._calls.values():
                    call._window += value - self._peer_window
                self._peer_window = value
            elif key == 5:
                self._peer_frame = value
        self._frame(_SETTINGS, _ACK, 0, b"")
        self._send_waiting()

    def _on_goaway(self, last_id: int, why: bytes) -> None:
        self.usable = False
        reason = f"the server is closing ({why.decode('utf-8', 'replace')})"
        for call in [*self._calls.values(), *self._waiting]:
            if call.stream_id == 0 or call.stream_id > last_id:
                self._waiting.pop(call, None)
                self._end(call, UNAVAILABLE, reason)

    def _end(self, call: Call, status: int, details: str) -> None:
        self._waiting.pop(call, None)
        self._calls.pop(call.stream_id, None)
        call.on_end(status, details)
        self._send_waiting()


def _percent_decode(message: bytes) -> str:
    parts = message.split(b"%")
    made = parts[0]
    for part in parts[1:]:
        code = part[:2]
        hexadecimal = len(code) == 2 and code.isalnum() and not code.strip(b"0123456789abcdefABCDEF")
        made += bytes((int(code, 16),)) + part[2:] if hexadecimal else b"%" + part
    return made.decode("utf-8", "replace")
