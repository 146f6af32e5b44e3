"""Stop words by token ids, as TensorRT-LLM's stop criterion compares them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Word = tuple[int, ...]


def split_words(ids: Sequence[int], offsets: Sequence[int]) -> tuple[Word, ...]:
    """Words of one row pair of ``stop_words_list``: ids in a flat list, and the end of each word.

    A negative offset is padding, and so are ids after the last offset (preprocessing's
    ``_to_word_list_format``); an empty word is dropped.
    """
    words: list[Word] = []
    start = 0
    for end in offsets:
        if end < 0:
            break
        if end > len(ids) or end < start:
            raise ValueError(
                f"offset {end} is outside of {start} to {len(ids)}; offsets must rise within the ids"
            )
        if end > start:
            words.append(tuple(int(token) for token in ids[start:end]))
        start = end
    return tuple(words)


class StopWatch:
    """Finds the first place where the generated ids end with one of the words.

    Only generated ids count; a word may not begin in the prompt.
    """

    def __init__(self, words: Iterable[Word]) -> None:
        self._words = tuple(words)
        self._longest = max(map(len, self._words), default=0)
        self._tail: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._words)

    def feed(self, ids: Sequence[int]) -> int | None:
        """Takes new ids; returns how many of them are kept (the word included) if a word ended, else None."""
        for taken, token in enumerate(ids, 1):
            self._tail.append(token)
            if any(tuple(self._tail[-len(word) :]) == word for word in self._words):
                return taken
            del self._tail[: -self._longest]
        return None
