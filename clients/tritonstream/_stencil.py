"""Recognises a streamed message that differs from an earlier one in its text alone, without parsing it.

The messages of a stream say the same but for the text: model, request id, flags, and the output's name, dtype
and shape. What comes before the text in one parsed message (protobuf writes fields in the order of their
numbers, and ``raw_output_contents`` is the last) is compared with the next one byte by byte. Equal bytes mean
equal fields; anything else is parsed. This takes away more than half of what the client adds to gRPC's work.
"""

from __future__ import annotations

from ._tensors import LENGTH

_INFER_RESPONSE = 0x12  # field 2 of ModelStreamInferResponse, length-delimited
_RAW_OUTPUT_CONTENTS = 0x32  # field 6 of ModelInferResponse, length-delimited
_MOST_STARTS = 64


class TextStencil:
    """Learns from messages that were parsed, and matches those that were not."""

    __slots__ = ("_head", "_starts")

    def __init__(self) -> None:
        self._head: bytes | None = None
        self._starts: dict[int, bytes] = {}  # length of a message → all that comes before its text

    def learn(self, data: bytes, raw: bytes) -> None:
        """Takes a message that holds one output, whose bytes are ``raw``, and nothing after it."""
        tail = bytes((_RAW_OUTPUT_CONTENTS,)) + _varint(len(raw)) + raw
        start = _after_varint(data, 1)
        if data[:1] == bytes((_INFER_RESPONSE,)) and data.endswith(tail):
            self._head = data[start : len(data) - len(tail)]
            self._starts.clear()

    def match(self, data: bytes) -> bytes | None:
        """The text of a message that is like the one learned from, if it is."""
        start = self._starts.get(len(data))
        if start is not None and data.startswith(start):  # as long, so the lengths in it are the same too
            return data[len(start) :]
        return self._match_new(data)

    def _match_new(self, data: bytes) -> bytes | None:
        head = self._head
        if head is None or len(data) < len(head) + 8 or data[0] != _INFER_RESPONSE:
            return None
        start = 2 if data[1] < 128 else 3 if data[2] < 128 else 4  # longer texts are rare: they do not match
        if not data.startswith(head, start):
            return None
        at = start + len(head)
        end = len(data)
        if end - at < 6 or data[at] != _RAW_OUTPUT_CONTENTS:
            return None
        size = data[at + 1]
        at += 2
        if size >= 128:
            size = size & 127 | data[at] << 7
            at += 1
        if at + size != end or LENGTH.unpack_from(data, at)[0] + 4 != size:
            return None
        if len(self._starts) < _MOST_STARTS:
            self._starts[end] = data[: at + 4]
        return data[at + 4 :]


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 128:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _after_varint(data: bytes, at: int) -> int:
    while at < len(data) and data[at] >= 128:
        at += 1
    return at + 1
