"""HPACK (RFC 7541), as much as a gRPC client needs that forbids the dynamic table: no state at all.

Request headers are written as literals; of a response's, those outside the static table and ``:status`` are
read. Huffman lengths are those of the RFC's appendix B, whose code is canonical.
"""

from __future__ import annotations

# code length of each symbol 0..256 (256 ends a string), "A" for 5 bits
_LENGTHS = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCDIOIJBKABABABBBACCBB"
    "BABCBAABCCCCCKGJIXPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSPRRRSRSSVVPORSRUVVVWWVTUOQVWWVWTQQVV"
    "XWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWVZ"
)  # fmt: skip

_STATUS = {8: b"200", 9: b"204", 10: b"206", 11: b"304", 12: b"400", 13: b"404", 14: b"500"}
_STATIC_NAMES = 61


class HpackError(ValueError):
    """A header block that does not follow the RFC, or uses the table that was forbidden."""


def _codes() -> dict[tuple[int, int], int]:
    """(length, code) → symbol."""
    made, code, last = {}, 0, 5
    for symbol in sorted(range(257), key=lambda symbol: (_LENGTHS[symbol], symbol)):
        length = ord(_LENGTHS[symbol]) - ord("A") + 5
        code <<= length - last
        made[length, code] = symbol
        code, last = code + 1, length
    return made


_CODES = _codes()


def encode_literal(name: bytes, value: bytes) -> bytes:
    """One header, never indexed."""
    return b"\x00" + _encode_integer(len(name), 7) + name + _encode_integer(len(value), 7) + value


def _encode_integer(value: int, bits: int) -> bytes:
    limit = (1 << bits) - 1
    if value < limit:
        return bytes((value,))
    made, value = [limit], value - limit
    while value >= 128:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes((*made, value))


def decode_headers(block: bytes) -> dict[bytes, bytes]:
    """Headers by name; those that the static table names are left out, except ``:status``.

    Raises:
        HpackError: for a block that is cut short or refers to a dynamic table.
    """
    made: dict[bytes, bytes] = {}
    pos = 0
    while pos < len(block):
        first = block[pos]
        if first & 0x80:  # indexed
            index, pos = _integer(block, pos, 7)
            _check(index)
            if index in _STATUS:
                made[b":status"] = _STATUS[index]
        elif first & 0xE0 == 0x20:  # the table's new size
            _, pos = _integer(block, pos, 5)
        else:
            index, pos = _integer(block, pos, 6 if first & 0x40 else 4)
            if index:
                _check(index)
                name = b":status" if index in _STATUS else b""
            else:
                name, pos = _string(block, pos)
            value, pos = _string(block, pos)
            if name:
                made[name] = value
    return made


def _check(index: int) -> None:
    if not 1 <= index <= _STATIC_NAMES:
        raise HpackError(f"header index {index} is in the dynamic table, which was forbidden")


def _integer(block: bytes, pos: int, bits: int) -> tuple[int, int]:
    limit = (1 << bits) - 1
    value = _byte(block, pos) & limit
    pos += 1
    if value < limit:
        return value, pos
    shift = 0
    while True:
        byte = _byte(block, pos)
        pos += 1
        value += (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value, pos
        if shift > 28:
            raise HpackError("an integer is too large")


def _string(block: bytes, pos: int) -> tuple[bytes, int]:
    huffman = _byte(block, pos) & 0x80
    length, pos = _integer(block, pos, 7)
    if pos + length > len(block):
        raise HpackError("a string is cut short")
    data = block[pos : pos + length]
    return (_huffman(data) if huffman else data), pos + length


def _byte(block: bytes, pos: int) -> int:
    if pos >= len(block):
        raise HpackError("the header block is cut short")
    return block[pos]


def _huffman(data: bytes) -> bytes:
    made = bytearray()
    code = length = 0
    for byte in data:
        for bit in range(7, -1, -1):
            code = code << 1 | byte >> bit & 1
            length += 1
            symbol = _CODES.get((length, code))
            if symbol is not None:
                if symbol == 256:
                    raise HpackError("a string holds the end of a string")
                made.append(symbol)
                code = length = 0
            elif length > 30:
                raise HpackError("a string holds no Huffman code")
    if length > 7 or code != (1 << length) - 1:
        raise HpackError("a string ends within a Huffman code")
    return bytes(made)
