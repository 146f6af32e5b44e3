"""Word lists as TensorRT-LLM's backend takes them: ids of all words in a row, and where each one ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def read_words(rows: npt.NDArray[Any]) -> list[tuple[int, ...]]:
    """Words of one prompt.

    Args:
        rows: [2, n]: ids, and the end of each word (exclusive), padded with -1.
    """
    flat = np.asarray(rows).reshape(2, -1)
    ends = [int(end) for end in flat[1] if end > 0]
    return [tuple(int(i) for i in flat[0][start:end]) for start, end in zip([0, *ends], ends)]  # noqa: B905


class StopSequences:
    """Finds ids that end an answer, wherever responses part them."""

    def __init__(self, words: list[tuple[int, ...]]) -> None:
        self._words = [word for word in words if word]

    def length_until_stop(self, ids: list[int], seen: int) -> int | None:
        """How many ids there are up to and with the first stop word that ends behind ``seen``; None: none."""
        for end in range(seen + 1, len(ids) + 1):
            for word in self._words:
                if tuple(ids[max(0, end - len(word)) : end]) == word:
                    return end
        return None
