"""Text to ids: prompts without a doubled BOS, and word lists without any special token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .errors import PromptError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]


class Encoder:
    """Encodes for one tokenizer.

    Args:
        tokenizer: Hugging Face's fast tokenizer.
        bos_id: id of the token that begins a text, if the model has one.
        adds_bos: whether a text gets it; None: as the tokenizer's own post-processor does.
    """

    def __init__(self, tokenizer: Tokenizer, *, bos_id: int | None, adds_bos: bool | None = None) -> None:
        self._tokenizer = tokenizer
        self._bos_id = bos_id
        self._bos_text = None if bos_id is None else tokenizer.id_to_token(bos_id)
        self._adds_bos = adds_bos
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self._longest_chars = max(map(len, vocabulary), default=1)

    def least_tokens(self, text: str) -> int:
        """A number of tokens that ``text`` has at least, without encoding it.

        No token stands for more characters than the longest one has. Tells hopeless prompts early.
        """
        return len(text) // self._longest_chars

    def prompt(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of a prompt.

        Args:
            text: the prompt; special tokens that are spelt out in it are encoded as such.
            add_special_tokens: add what the model's texts begin and end with (BOS); a chat template spells
                it out itself, so its text is encoded without. A text that already begins with BOS does not
                get another.

        Raises:
            PromptError: if the text has no token at all.
        """
        ids = self._encode(text, add_special_tokens)
        if add_special_tokens and self._bos_id is not None:
            if self._bos_text and text.startswith(self._bos_text):
                if ids[:2] == [self._bos_id] * 2:
                    del ids[0]
            elif self._adds_bos is True and ids[:1] != [self._bos_id]:
                ids.insert(0, self._bos_id)
            elif self._adds_bos is False and ids[:1] == [self._bos_id]:
                del ids[0]
        if not ids:
            raise PromptError("the prompt is empty: it has no token")
        return ids

    def word(self, text: str) -> list[int]:
        """Ids of a word in a list: no BOS, no other special tokens."""
        return self._encode(text, False)

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        # the batch call releases the GIL while it works, the single one does not
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return list(encoding.ids)


def word_list(sequences: Iterable[Sequence[int]]) -> Int32:
    """Token sequences in TensorRT-LLM's form for stop_words_list and bad_words_list.

    Returns:
        int32 [2, n]: all ids in a row, then the end offset of each sequence; ids are padded with 0, offsets
        with -1. Empty sequences are left out, except that a list of nothing but them has one column, as
        NVIDIA's preprocessing makes it.
    """
    given = [list(sequence) for sequence in sequences]
    kept = [sequence for sequence in given if sequence]
    width = max(sum(map(len, kept)), 1 if given else 0)
    made = np.zeros((2, width), dtype=np.int32)
    made[1] = -1
    end = 0
    for index, sequence in enumerate(kept):
        made[0, end : end + len(sequence)] = sequence
        end += len(sequence)
        made[1, index] = end
    return made


def embedding_bias(words: Sequence[Sequence[int]], weights: Sequence[float], vocab_size: int) -> Float32:
    """Adds each word's weight to the logits of its tokens.

    Args:
        words: ids of each word, without special tokens.
        weights: one a word.
        vocab_size: the engine's, which may be padded beyond the tokenizer's.

    Returns:
        float32 [vocab_size].

    Raises:
        PromptError: if words and weights differ in number, or a weight is no finite number.
    """
    if len(words) != len(weights):
        raise PromptError(f"{len(words)} embedding_bias_words but {len(weights)} embedding_bias_weights")
    bias = np.zeros(vocab_size, dtype=np.float32)
    for ids, weight in zip(words, weights, strict=True):
        if not np.isfinite(weight):
            raise PromptError(f"embedding_bias_weights holds {weight}, which is no finite number")
        for id_ in ids:
            bias[id_] += weight
    return bias
