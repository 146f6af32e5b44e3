"""A tokenizer folder, for models that deal in token ids; ``tritonstream.text`` is loaded with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    from .text import TextStream


class Codec:
    """Text ↔ ids of one model.

    Args:
        folder: holds tokenizer.json and, as the model's publisher wrote them, tokenizer_config.json,
            generation_config.json and chat_template.jinja.

    Raises:
        UsageError: if the folder's tokenizer cannot be used, here and in all methods.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from .text import TextAssets, TextError, TextStream
        except ImportError as exc:
            raise UsageError(
                f"client-side tokenising needs the packages tokenizers and jinja2: {exc}"
            ) from exc
        self._error = TextError
        self._stream = TextStream
        path = Path(folder)
        self._assets = self._try(TextAssets, path.parent if path.name == "tokenizer.json" else path)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of a prompt; BOS comes once at most."""
        return list(self._try(self._assets.encoder.prompt, text, add_special_tokens=add_special_tokens))

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> str:
        """Chat messages as the prompt that the model's template makes of them."""
        return str(self._try(lambda: self._assets.template.render(messages, tools=tools)))

    def words(self, words: Sequence[str]) -> list[list[int]]:
        """Ids of each word, without BOS or any other special token."""
        return [self._assets.encoder.word(word) for word in words]

    def bias(self, words: Mapping[str, float], vocab_size: int | None = None) -> Any:
        """float32 [vocab_size]: each word's weight at its tokens; see ``text.embedding_bias``."""
        from .text import embedding_bias

        size = vocab_size or self._assets.vocab_size
        return self._try(embedding_bias, self.words(list(words)), list(words.values()), size)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end an answer."""
        return tuple(self._assets.end_ids)

    @property
    def pad_id(self) -> int:
        return int(self._assets.pad_id)

    def text_stream(self, stops: Sequence[str]) -> TextStream:
        """A detokeniser for one answer."""
        return self._stream(self._assets.table, stops)

    def _try(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return work(*args, **kwargs)
        except self._error as exc:
            raise UsageError(str(exc)) from exc


def embedding_bias(
    words: Mapping[str, float], tokenizer: str | os.PathLike[str], vocab_size: int | None = None
) -> Any:
    """Makes the ``embedding_bias`` input of an engine from words, without biasing BOS.

    NVIDIA's preprocessing encodes the words with special tokens, so that the weight lands on BOS as well.

    Args:
        words: word → what is added to the logits of its tokens. A leading space matters, as it does in text.
        tokenizer: folder with the model's tokenizer.json.
        vocab_size: the engine's, which may be padded beyond the tokenizer's; default the tokenizer's.

    Returns:
        float32 array [vocab_size].

    Raises:
        UsageError: for a tokenizer that cannot be used, and for weights that are no finite numbers.
    """
    return Codec(tokenizer).bias(words, vocab_size)
