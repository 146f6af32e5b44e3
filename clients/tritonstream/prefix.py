"""Prefix hygiene: how much of a log of prompts a prefix cache can reuse, and what keeps it from reusing more.

KV reuse works on whole blocks from the first token on: one differing token ends it for all that follows. So a
timestamp or a request id at the head of a prompt costs the whole prompt. ``analyse`` reads a log, finds where
prompts part and by what kind of thing, and counts the blocks that are reused now and with those things moved
behind the part that is shared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ._slots import Slot, common_prefix, slots

Encode = Callable[[str], Sequence[object]]
"""Text to token ids, without special tokens. Anything hashable serves as an id."""

_ALIKE = 0.5  # share of the shorter prompt from which on two prompts are taken for one template
_SAME_WORDS = frozenset({"json order", "whitespace"})  # kinds of slots that say the same in both prompts
_RECENT_TEMPLATES = 16  # that a prompt is compared with
_ROUGH = re.compile(r"\s?\w{1,6}|\s?[^\w\s]|\s")


def rough_tokens(text: str) -> list[str]:
    """Pieces about as long as tokens, for where no tokenizer is at hand."""
    return _ROUGH.findall(text)


@dataclass(frozen=True)
class Part:
    """One thing that parts prompts: kind, how many prompts, and where and what in an example."""

    kind: str
    prompts: int
    token: int  # in the example: tokens that are the same for both, up to where it parts them
    example: tuple[str, str]
    context: str  # the text before it

    @property
    def advice(self) -> str:
        """What to do about this kind."""
        return _ADVICE.get(self.kind, "move it behind the part that is the same in every prompt")


_ADVICE = {
    "timestamp": "move it to the end of the prompt, or round it to the day",
    "uuid": "drop it, or move it to the end: the model does not need it",
    "id": "drop it, or move it to the end: the model does not need it",
    "counter": "move it to the end of the prompt",
    "json order": "write keys and tools in one order: json.dumps(…, sort_keys=True), tools sorted by name",
    "whitespace": "write the template once, with fixed white space",
    "name": "move what differs between users behind the shared instructions",
    "address": "move what differs between users behind the shared instructions",
}


@dataclass(frozen=True)
class PrefixReport:
    """Counts over a log. Blocks are whole blocks of ``block_tokens`` tokens; the cache is taken as endless.

    Attributes:
        common_tokens: tokens with which every prompt of the log begins.
        reused_blocks, reused_blocks_moved: found in the cache when the prompts come in order, as they are and
            with every slot moved to the end.
        parts: what parts the prompts, most frequent first.
    """

    prompts: int
    templates: int
    tokens: int
    blocks: int
    block_tokens: int
    common_tokens: int
    reused_blocks: int
    reused_blocks_moved: int
    parts: tuple[Part, ...]

    @property
    def common_blocks(self) -> int:
        return self.common_tokens // self.block_tokens

    @property
    def tokens_saved_per_prompt(self) -> float:
        """Prompt tokens, in the mean, that need no prefill any more once the slots are moved."""
        return (self.reused_blocks_moved - self.reused_blocks) * self.block_tokens / max(1, self.prompts)


def analyse(prompts: Sequence[str], *, encode: Encode = rough_tokens, block_tokens: int = 32) -> PrefixReport:
    """Reads a log of prompts in the order in which they were sent.

    Args:
        prompts: whole prompts, chat templates applied.
        encode: the model's tokenizer; the default is a rough split into pieces.
        block_tokens: the engine's ``tokens_per_block``.

    Raises:
        ValueError: for an empty log, or a block below one token.
    """
    if not prompts:
        raise ValueError("the log holds no prompt")
    if block_tokens < 1:
        raise ValueError(f"block_tokens is {block_tokens}; a block holds at least one token")
    ids = [encode(prompt) for prompt in prompts]
    templates = _templates(prompts)
    moved = list(prompts)
    parts: Counter[str] = Counter()
    examples: dict[str, tuple[int, int, Slot]] = {}
    for reference, followers in templates.items():
        for index, found in followers.items():
            moved[index] = _moved(
                prompts[index],
                [
                    (slot.second_start, slot.second_end, _same_words(slot, prompts[reference]))
                    for slot in found
                ],
            )
            parts.update({slot.kind for slot in found})
            for slot in found:
                examples.setdefault(slot.kind, (reference, index, slot))
        known: list[Slot] = next(filter(None, followers.values()), [])
        for index in (reference, *(index for index, found in followers.items() if not found)):
            same = common_prefix(prompts[reference], prompts[index])  # it has what the first prompt has there
            moved[index] = _moved(
                prompts[index],
                [
                    (slot.start, slot.end, _same_words(slot, prompts[reference]))
                    for slot in known
                    if slot.end <= same
                ],
            )
    return PrefixReport(
        prompts=len(prompts),
        templates=len(templates),
        tokens=sum(map(len, ids)),
        blocks=sum(len(row) // block_tokens for row in ids),
        block_tokens=block_tokens,
        common_tokens=_common(ids),
        reused_blocks=reused_blocks(ids, block_tokens),
        reused_blocks_moved=reused_blocks([encode(prompt) for prompt in moved], block_tokens),
        parts=tuple(
            _part(kind, count, examples[kind], prompts, encode) for kind, count in parts.most_common()
        ),
    )


def reused_blocks(prompts: Sequence[Sequence[object]], block_tokens: int) -> int:
    """Whole blocks that an endless prefix cache has when the prompts come one after another.

    A block is found if all tokens up to its end were seen before. The last token of a prompt is always
    computed, so a prompt that ends with a block does not reuse that block.
    """
    seen: set[tuple[int, int]] = set()
    reused = 0
    for ids in prompts:
        chain, hitting = 0, True
        for number in range(len(ids) // block_tokens):
            block = tuple(ids[number * block_tokens : (number + 1) * block_tokens])
            chain = hash((chain, block))
            key = (number, chain)
            hitting = hitting and key in seen and (number + 1) * block_tokens < len(ids)
            reused += hitting
            seen.add(key)
    return reused


def _templates(prompts: Sequence[str]) -> dict[int, dict[int, list[Slot]]]:
    """The first prompt of each template, with the prompts that follow it and their slots against it."""
    templates: dict[int, dict[int, list[Slot]]] = {}
    for index, prompt in enumerate(prompts):
        for reference in list(templates)[: -_RECENT_TEMPLATES - 1 : -1]:
            found = list(slots(prompts[reference], prompt))
            if _shared_chars(prompts[reference], prompt, found) >= _ALIKE * min(
                len(prompts[reference]), len(prompt)
            ):
                templates[reference][index] = found
                break
        else:
            templates[index] = {}
    return templates


def _shared_chars(first: str, second: str, found: Sequence[Slot]) -> int:
    """Characters that both have in common, around the slots and in another order in them, up to where they
    part for good.
    """
    shared, at, other = 0, 0, 0
    for slot in found:
        shared += (slot.end if slot.kind in _SAME_WORDS else slot.start) - at
        at, other = slot.end, slot.second_end
    return shared + common_prefix(first, second, at, other)


def _same_words(slot: Slot, reference: str) -> str | None:
    """What stands in for a slot that only writes the same thing differently; None: it has to move."""
    return reference[slot.start : slot.end] if slot.kind in _SAME_WORDS else None


def _moved(prompt: str, spans: Sequence[tuple[int, int, str | None]]) -> str:
    """The prompt with each span replaced by the text given with it, or else cut out and put at the end."""
    kept, cut, at = [], [], 0
    for start, end, instead in spans:
        if start < at:
            continue
        kept.append(prompt[at:start])
        if instead is None:
            cut.append(f"\n{prompt[start:end]}")
        else:
            kept.append(instead)
        at = end
    return "".join([*kept, prompt[at:], *cut])


def _common(ids: Sequence[Sequence[object]]) -> int:
    shared = list(ids[0])
    for row in ids[1:]:
        count = 0
        while count < min(len(shared), len(row)) and shared[count] == row[count]:
            count += 1
        del shared[count:]
    return len(shared)


def _part(
    kind: str, count: int, example: tuple[int, int, Slot], prompts: Sequence[str], encode: Encode
) -> Part:
    first, second, slot = example
    mine, theirs = prompts[first], prompts[second][slot.second_start : slot.second_end]
    exchanged = mine[: slot.start] + theirs + mine[slot.end :]
    return Part(
        kind=kind,
        prompts=count,
        token=_common([encode(mine), encode(exchanged)]),
        example=(mine[slot.start : slot.end], theirs),
        context=mine[max(0, slot.start - 40) : slot.start],
    )


__all__ = ["Part", "PrefixReport", "analyse", "reused_blocks", "rough_tokens"]
