"""Bytes that arrive in pieces, as text: a character is given out when it is whole.

The result over all pieces equals ``bytes.decode("utf-8", errors="replace")`` of the whole: each maximal
ill-formed part becomes exactly one U+FFFD, as soon as it is certain to be ill-formed. At most 3 bytes,
the longest beginning of a character, are held.
"""

from __future__ import annotations

import codecs

from .errors import PromptError

_decoder = codecs.getincrementaldecoder("utf-8")


class Utf8Stream:
    """Incremental decoder of one stream.

    >>> stream = Utf8Stream()
    >>> [stream.feed(piece) for piece in (b"\\xe8\\x81", b"\\xaa!")], stream.flush()
    (['', '聪!'], '')
    """

    __slots__ = ("_decode", "_inner")

    def __init__(self) -> None:
        self._inner = _decoder("replace")
        self._decode = self._inner.decode

    def feed(self, data: bytes) -> str:
        """Returns the characters that ``data`` completes."""
        return self._decode(data)

    def flush(self) -> str:
        """Ends the stream: the beginning of a character that never came becomes one U+FFFD."""
        return self._decode(b"", True)

    @property
    def held(self) -> bytes:
        """The bytes of the incomplete character, 0 to 3 of them."""
        return self._inner.getstate()[0]


def decode_input(data: bytes | str, what: str) -> str:
    """Returns ``data`` as text that can be encoded again.

    Args:
        data: bytes of a request, or text from its JSON.
        what: the input's name, for the message.

    Raises:
        PromptError: for bytes that are not UTF-8, and for lone surrogates (JSON can spell them).
    """
    if isinstance(data, str):
        try:
            data.encode("utf-8")
        except UnicodeEncodeError as exc:
            raise PromptError(
                f"{what} holds a lone surrogate ({data[exc.start]!a} at character {exc.start}), which is no "
                "character; send the pair or U+FFFD"
            ) from None
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise PromptError(
            f"{what} is not UTF-8: byte 0x{data[exc.start]:02x} at offset {exc.start} ({exc.reason}); "
            "encode the text as UTF-8"
        ) from None
