"""The paged KV pool of one replica: blocks that running sequences hold, and blocks kept for reuse.

What ended requests leave behind stays in the pool until its place is needed, the least recently used first,
as TensorRT-LLM's block manager does. Only shared prefixes can be found again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

_Prefix = tuple[int, int]  # its number and its whole blocks: a shorter beginning of it is another one


@dataclass
class _Held:
    own: int  # blocks of this sequence alone
    prefix: _Prefix | None = None  # blocks that it shares


class KvPool:
    """Counts blocks. ``free`` are those that no running sequence holds, blocks kept for reuse included."""

    def __init__(self, *, blocks: int, tokens_per_block: int, reuse: bool) -> None:
        self.blocks = blocks
        self.free = blocks
        self.tokens_per_block = tokens_per_block
        self._reuse = reuse
        self._sequences: dict[int, _Held] = {}
        self._readers: dict[_Prefix, int] = {}  # of prefixes in use
        self._kept: OrderedDict[_Prefix, int] = OrderedDict()  # → blocks, the least recently used first
        self._kept_blocks = 0
        self._leftovers = 0

    def blocks_of(self, tokens: int) -> int:
        """Blocks of ``tokens`` tokens, the last one perhaps not full."""
        return -(-tokens // self.tokens_per_block)

    def admit(self, sequence: int, tokens: int, *, prefix: int = -1, prefix_tokens: int = 0) -> int | None:
        """Blocks for a sequence of ``tokens``; returns the tokens that were found in the cache.

        None: there is no room, and nothing was taken. ``prefix`` -1: nothing that others could share.
        """
        key = self._key(prefix, prefix_tokens)
        found = key is not None and (key in self._readers or key in self._kept)
        shared = key[1] if found and key else 0
        own = self.blocks_of(tokens) - shared
        wakes = shared if key not in self._readers else 0
        if own + wakes > self.free:
            return None
        if found and key:
            self._read(key)
        self._take(own)
        self._sequences[sequence] = _Held(own, key if found else None)
        return shared * self.tokens_per_block

    def computed(self, sequence: int, *, prefix: int, prefix_tokens: int) -> None:
        """The sequence's prompt is in the cache: from now on others can find its prefix."""
        key = self._key(prefix, prefix_tokens)
        held = self._sequences[sequence]
        if key is None or held.prefix is not None or key in self._readers or key in self._kept:
            return
        self._readers[key] = 1
        held.own -= key[1]
        held.prefix = key

    def grow(self, blocks: int) -> None:
        """Running sequences take more blocks; whose they are is said when they are released."""
        self._take(blocks)

    def release(self, sequence: int, tokens: int | None = None) -> None:
        """The sequence ends or is paused. ``tokens``: what it grew to; None: what it was admitted with."""
        held = self._sequences.pop(sequence)
        own = held.own
        if tokens is not None:
            own = self.blocks_of(tokens) - (held.prefix[1] if held.prefix else 0)
        if held.prefix is not None:
            self._leave(held.prefix)
        if self._reuse and own:
            self._leftovers -= 1
            self._keep((self._leftovers, own), own)
        else:
            self.free += own

    def _key(self, prefix: int, tokens: int) -> _Prefix | None:
        blocks = tokens // self.tokens_per_block
        return (prefix, blocks) if self._reuse and prefix >= 0 and blocks else None

    def _read(self, key: _Prefix) -> None:
        if key in self._kept:
            blocks = self._kept.pop(key)
            self._kept_blocks -= blocks
            self._take(blocks)
        self._readers[key] = self._readers.get(key, 0) + 1

    def _leave(self, key: _Prefix) -> None:
        self._readers[key] -= 1
        if not self._readers[key]:
            del self._readers[key]
            self._keep(key, key[1])

    def _keep(self, key: _Prefix, blocks: int) -> None:
        self.free += blocks
        self._kept[key] = blocks
        self._kept_blocks += blocks

    def _take(self, blocks: int) -> None:
        self.free -= blocks
        while self._kept_blocks > self.free:
            _, evicted = self._kept.popitem(last=False)
            self._kept_blocks -= evicted
