"""How much of the prompts was seen before: what an engine with KV reuse can take from its cache at most.

The engine's own gauges tell what it did reuse; the difference is what left its pool, or was not yet computed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence


class SeenPrefixes:
    """The blocks of recent prompts, as the engine keys them: by their own tokens and all before.

    Args:
        tokens_per_block: the engine's.
        blocks: how many are remembered, those used last; the engine's pool holds as many.
    """

    def __init__(self, tokens_per_block: int, blocks: int) -> None:
        self._size = tokens_per_block
        self._limit = blocks
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.Lock()  # prompts are prepared by several threads

    @classmethod
    def of(cls, tokens_per_block: int, kv_tokens: int) -> SeenPrefixes | None:
        """For an engine's pool; None for one without KV reuse (either is 0)."""
        blocks = kv_tokens // tokens_per_block if tokens_per_block else 0
        return cls(tokens_per_block, blocks) if blocks else None

    def count(self, ids: Sequence[int]) -> int:
        """Remembers a prompt; the number of its leading tokens that lie in blocks seen before."""
        size = self._size
        keys = []
        key = 0
        for begin in range(0, len(ids) - size + 1, size):
            key = hash((key, *ids[begin : begin + size]))
            keys.append(key)
        with self._lock:
            found = next((i for i, key in enumerate(keys) if key not in self._seen), len(keys))
            for key in keys:
                self._seen[key] = None
                self._seen.move_to_end(key)
            while len(self._seen) > self._limit:
                self._seen.popitem(last=False)
        return found * size
