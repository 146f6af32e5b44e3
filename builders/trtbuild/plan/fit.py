"""How several language models share the room that is left for them.

1. Concurrency, and a pool, that were asked for are given. The models that asked for no concurrency get the
   same number, the largest up to `DEFAULT_CONCURRENCY` with which everything fits; up to its batch slots
   where a model asked for those.
2. What is left goes to the pools in proportion to what they hold already, up to twice that: the second half
   keeps prefixes of ended requests. A model without KV reuse gains nothing from it and gets none; on a CPU
   the pool stays at what the sequences need, since it is taken from everybody's RAM.
3. The rest stays free, so that another model can be added later without touching these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trtbuild.plan.draft import Draft
from trtbuild.plan.kv import pool_tokens

# Beyond it tokens/s still rise on large cards, but so does the time to the first token; whoever wants more
# asks for it (requirements: find the level from a latency budget, not from memory).
DEFAULT_CONCURRENCY = 32
_POOL_PER_NEED = 2


@dataclass(frozen=True)
class Share:
    """What one model gets: sequences at once and pool tokens, of each of its instances."""

    concurrency: int
    kv_tokens: int


def share(drafts: Sequence[Draft], *, room_bytes: int) -> tuple[Share, ...]:
    """Shares of ``room_bytes``. Where the drafts do not fit, each gets the least that it asked for."""
    planned = _common_concurrency(drafts, room_bytes)
    concurrency = [_concurrency(draft, planned) for draft in drafts]
    taken = _taken(drafts, concurrency)
    needs = [draft.kv_need_bytes(count) for draft, count in zip(drafts, concurrency, strict=True)]
    extra = _extra(drafts, needs, max(0, room_bytes - taken))
    return tuple(
        Share(
            count,
            pool_tokens(
                pool_bytes=(need + more) // draft.instances,
                bytes_per_token=draft.kv_bytes_per_token,
                tokens_per_block=draft.tokens_per_block,
            ),
        )
        for draft, count, need, more in zip(drafts, concurrency, needs, extra, strict=True)
    )


def _taken(drafts: Sequence[Draft], concurrency: Sequence[int]) -> int:
    return sum(
        draft.fixed_bytes(count) + draft.kv_need_bytes(count)
        for draft, count in zip(drafts, concurrency, strict=True)
    )


def _common_concurrency(drafts: Sequence[Draft], room_bytes: int) -> int:
    """The largest number that fits for all that asked for none, by halving; 1 if not even that fits."""
    low, high = 1, max((draft.slots or DEFAULT_CONCURRENCY for draft in drafts), default=1)
    while low < high:
        middle = (low + high + 1) // 2
        if _taken(drafts, [_concurrency(draft, middle) for draft in drafts]) <= room_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def _concurrency(draft: Draft, common: int) -> int:
    """What was asked for, else the common number as far as the pool that was asked for carries it."""
    return draft.concurrency or min(
        common, draft.slots or DEFAULT_CONCURRENCY, draft.most_sequences or common
    )


def _extra(drafts: Sequence[Draft], needs: Sequence[int], left_bytes: int) -> list[int]:
    reusing = sum(need for draft, need in zip(drafts, needs, strict=True) if draft.keeps_prefixes)
    part = min(left_bytes, (_POOL_PER_NEED - 1) * reusing)
    return [
        part * need // reusing if draft.keeps_prefixes else 0
        for draft, need in zip(drafts, needs, strict=True)
    ]
