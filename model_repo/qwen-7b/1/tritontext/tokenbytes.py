"""Token id → bytes: detokenising as a table look-up, exact and without a tokenizer call per token.

The table is built from the ``decoder`` and ``model`` sections of a ``tokenizer.json``; what a decoder does
that depends on other tokens than the first is refused by name. Families that this covers:

- byte-level BPE (GPT-2's byte alphabet): Llama 3, Qwen, DeepSeek, SmolLM, Phi, Command R, tekken, …
- SentencePiece with or without byte fallback (``▁`` is a space, ``<0xE8>`` a byte): Llama 2, Mistral, Gemma
- Metaspace (T5, XLM-R) and WordPiece (BERT), whose first token decodes differently.

Ids outside the vocabulary (an engine's padding of it) and holes in it decode to nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .decoders import Chain, compile_decoder
from .errors import TokenizerError


class TokenBytes:
    """The bytes of every token id of one tokenizer.

    Args:
        spec: the parsed ``tokenizer.json``.
        skip_special_tokens: special tokens decode to nothing, as in Hugging Face's ``decode``.

    Raises:
        TokenizerError: for a vocabulary or decoder that cannot be reproduced; the message names it.
    """

    def __init__(self, spec: Mapping[str, Any], *, skip_special_tokens: bool = True) -> None:
        vocabulary = _vocabulary(spec)
        added = {entry["id"]: entry for entry in spec.get("added_tokens") or ()}
        self.special_ids = frozenset(id_ for id_, entry in added.items() if entry.get("special"))
        self._chain: Chain = compile_decoder(spec.get("decoder"))
        self.leading_spaces_dropped = self._chain.strip_start
        """How many spaces at the very beginning of a text the decoder drops (0 or 1, as a rule)."""
        tokens: dict[int, str] = dict(vocabulary)
        tokens.update({id_: entry["content"] for id_, entry in added.items()})
        if not tokens:
            raise TokenizerError("the tokenizer has an empty vocabulary")
        hidden = self.special_ids if skip_special_tokens else frozenset()
        size = max(tokens) + 1
        pieces = [b""] * size
        known = bytearray(size)
        for id_, token in tokens.items():
            if id_ not in hidden:
                pieces[id_] = self._chain.piece(token, added=id_ in added)
                known[id_] = 1
        self._tokens = tokens
        self._added = frozenset(added)
        self._known = bytes(known)
        self.pieces: list[bytes] = pieces
        """Bytes by id, for a token that is not the first of its text."""

    @classmethod
    def from_json(cls, text: str | bytes, *, skip_special_tokens: bool = True) -> TokenBytes:
        """Builds the table from the text of a ``tokenizer.json``."""
        try:
            spec = json.loads(text)
        except ValueError as exc:
            raise TokenizerError(f"the tokenizer is not JSON: {exc}") from None
        if not isinstance(spec, dict):
            raise TokenizerError("the tokenizer is not a JSON object")
        return cls(spec, skip_special_tokens=skip_special_tokens)

    def __len__(self) -> int:
        """One more than the largest id of the vocabulary; an engine's may be padded beyond it."""
        return len(self.pieces)

    def is_known(self, id_: int) -> bool:
        """Whether the id decodes to anything by itself: in the vocabulary and not skipped."""
        return 0 <= id_ < len(self._known) and self._known[id_] == 1

    @property
    def first_differs(self) -> bool:
        """Whether the first token of a text has other bytes than the same token later."""
        return self._chain.first_differs

    def first_piece(self, id_: int) -> bytes:
        """Bytes of a known id that begins a text, before leading spaces are dropped."""
        return self._chain.piece(self._tokens[id_], added=id_ in self._added, first=True)

    def join(self, ids: Iterable[int]) -> bytes:
        """Bytes of ids in the middle of a text."""
        pieces, size = self.pieces, len(self.pieces)
        return b"".join([pieces[id_] for id_ in ids if 0 <= id_ < size])

    def decode(self, ids: Iterable[int]) -> str:
        """The whole text of ``ids``, from its beginning; ill-formed bytes become U+FFFD."""
        from .detokenize import TextStream

        stream = TextStream(self)
        return stream.push(list(ids)) + stream.flush()


def _vocabulary(spec: Mapping[str, Any]) -> dict[int, str]:
    model = spec.get("model")
    if not isinstance(model, Mapping):
        raise TokenizerError("this is no tokenizer.json of Hugging Face's: it has no section 'model'")
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, Mapping):
        return {int(id_): token for token, id_ in vocabulary.items()}
    if isinstance(vocabulary, list):  # Unigram: [token, score] by id
        return {id_: entry[0] for id_, entry in enumerate(vocabulary)}
    raise TokenizerError(f"the tokenizer's model {model.get('type')!r} has no vocabulary")
