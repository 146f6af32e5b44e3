"""The ``decoder`` section of a tokenizer.json, compiled to a function from one token to its bytes.

Semantics follow the decoders of Hugging Face's ``tokenizers``; a step whose result for one token depends on
later tokens (a suffix that marks word ends, a strip at the end of the text) cannot stream and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .errors import TokenizerError

Step = Callable[[str, bool], str]  # (token, is it the first of the text) → text

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: character → byte. Printable bytes are themselves, the others follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return alphabet


_ALPHABET = byte_alphabet()


class Chain:
    """The compiled decoder of one tokenizer."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.byte_level = False
        self.byte_fallback = False
        self.fused = False
        self.first_differs = False
        self.strip_start = 0

    def piece(self, token: str, *, added: bool, first: bool = False) -> bytes:
        """Bytes of one token. Added tokens of a byte-level tokenizer are text, not bytes."""
        text = token
        for step in self.steps:
            text = step(text, first)
        if self.byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes((int(match[1], 16),))
        if self.byte_level and not added:
            try:
                return bytes([_ALPHABET[char] for char in text])
            except KeyError:
                pass  # as `tokenizers` does: a token outside the alphabet stands for itself
        return text.encode("utf-8", "replace")


def compile_decoder(spec: Mapping[str, Any] | None) -> Chain:
    """Compiles a ``decoder`` section.

    Raises:
        TokenizerError: if there is none, or a step of it cannot be reproduced token by token.
    """
    chain = Chain()
    if spec is None:
        raise TokenizerError(
            "the tokenizer has no decoder, so its tokens cannot be joined exactly; "
            "save it again with its family's decoder (ByteLevel, or Metaspace/ByteFallback)"
        )
    _add(chain, spec)
    return chain


def _refused(what: str) -> TokenizerError:
    return TokenizerError(f"the tokenizer's decoder {what}; this cannot be decoded exactly token by token")


def _add(chain: Chain, spec: Mapping[str, Any]) -> None:
    kind = spec.get("type")
    adder = _ADDERS.get(str(kind))
    if adder is None:
        known = ", ".join(sorted(_ADDERS))
        raise _refused(f"is {kind!r} (known are {known})")
    if chain.fused and kind not in ("Strip", "Fuse", "Replace"):
        raise _refused(f"applies {kind!r} to the fused text")
    adder(chain, spec)


def _sequence(chain: Chain, spec: Mapping[str, Any]) -> None:
    for step in spec.get("decoders") or ():
        _add(chain, step)


def _byte_level(chain: Chain, _: Mapping[str, Any]) -> None:
    chain.byte_level = True


def _byte_fallback(chain: Chain, _: Mapping[str, Any]) -> None:
    chain.byte_fallback = True


def _fuse(chain: Chain, _: Mapping[str, Any]) -> None:
    chain.fused = True


def _replace(chain: Chain, spec: Mapping[str, Any]) -> None:
    pattern, content = spec.get("pattern"), spec.get("content")
    literal = pattern.get("String") if isinstance(pattern, Mapping) else None
    if not isinstance(literal, str) or not isinstance(content, str):
        raise _refused(f"replaces the pattern {pattern!r}, which is no literal")
    if chain.fused and len(literal) != 1:
        raise _refused(f"replaces {literal!r} across tokens")
    chain.steps.append(lambda text, _first: text.replace(literal, content))


def _strip(chain: Chain, spec: Mapping[str, Any]) -> None:
    content, start, stop = spec.get("content"), int(spec.get("start", 0)), int(spec.get("stop", 0))
    if stop and chain.fused:
        raise _refused("strips the end of the text")
    if not isinstance(content, str) or len(content) != 1:
        raise _refused(f"strips {content!r}, not one character")
    if chain.fused:
        if content != " ":
            raise _refused(f"strips {content!r} from the text, not spaces")
        chain.strip_start += start
        return

    def strip(text: str, _first: bool) -> str:
        begin = 0
        while begin < min(start, len(text)) and text[begin] == content:
            begin += 1
        end = len(text)
        while end > begin and len(text) - end < stop and text[end - 1] == content:
            end -= 1
        return text[begin:end]

    chain.steps.append(strip)


def _metaspace(chain: Chain, spec: Mapping[str, Any]) -> None:
    replacement = spec.get("replacement", "▁")
    # older files spell the scheme as add_prefix_space
    scheme = spec.get("prepend_scheme") or ("always" if spec.get("add_prefix_space", True) else "never")
    drops = scheme != "never"
    chain.first_differs = chain.first_differs or drops
    chain.steps.append(lambda text, first: text.replace(replacement, "" if first and drops else " "))


_CLEANUP = (  # WordPiece's clean-up, in its order
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip


def _wordpiece(chain: Chain, spec: Mapping[str, Any]) -> None:
    prefix, cleanup = spec.get("prefix", "##"), bool(spec.get("cleanup", True))
    chain.first_differs = True

    def join(text: str, first: bool) -> str:
        if not first:
            text = text[len(prefix) :] if text.startswith(prefix) else " " + text
        if cleanup:
            for found, made in _CLEANUP:
                text = text.replace(found, made)
        return text

    chain.steps.append(join)


_ADDERS: dict[str, Callable[[Chain, Mapping[str, Any]], None]] = {
    "Sequence": _sequence,
    "ByteLevel": _byte_level,
    "ByteFallback": _byte_fallback,
    "Fuse": _fuse,
    "Replace": _replace,
    "Strip": _strip,
    "Metaspace": _metaspace,
    "WordPiece": _wordpiece,
}
