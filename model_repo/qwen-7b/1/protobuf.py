"""Protobuf's wire format, as much as three messages need: no generated code, so that an image needs none."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_ONE_BYTE = tuple(bytes((value,)) for value in range(128))


class ProtobufError(ValueError):
    """Bytes that are no message."""


def varint(value: int) -> bytes:
    """A number, not negative, in groups of 7 bits."""
    if value < 128:
        return _ONE_BYTE[value]
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field of bytes, text, packed numbers, or another message."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def varint_field(number: int, value: int) -> bytes:
    """A field of a number, not negative, or a truth value."""
    return varint(number << 3 | VARINT) + varint(value)


def fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, value, content) of each field: numbers have a value and no content, all else the reverse.

    Raises:
        ProtobufError: if ``data`` is no message.
    """
    pos, end = 0, len(data)
    while pos < end:
        key, pos = read_varint(data, pos)
        kind = key & 7
        if kind == VARINT:
            value, pos = read_varint(data, pos)
            yield key >> 3, value, b""
            continue
        if kind == BYTES:
            size, pos = read_varint(data, pos)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ProtobufError(f"a field of wire type {kind}")
        if pos + size > end:
            raise ProtobufError("a message that is cut off")
        yield key >> 3, 0, data[pos : pos + size]
        pos += size


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """The number at ``pos``, and where the next thing begins."""
    value = shift = 0
    while True:
        if pos >= len(data) or shift > 63:
            raise ProtobufError("a number that is cut off or too long")
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
        shift += 7
