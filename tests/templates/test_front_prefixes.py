"""Prompts that begin as earlier ones did are counted as an engine with KV reuse could use them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.front_modules import front_module

SeenPrefixes = front_module("prefixes").SeenPrefixes


def test_whole_blocks_from_the_start_count() -> None:
    seen = SeenPrefixes(tokens_per_block=4, blocks=100)
    assert seen.count([1, 2, 3, 4, 5, 6, 7, 8, 9]) == 0
    assert seen.count([1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8  # the ninth token fills no block
    assert seen.count([1, 2, 3, 4, 5, 6, 0, 8]) == 4
    assert seen.count([0, 2, 3, 4, 5, 6, 7, 8]) == 0  # the second block follows another first


def test_what_was_not_used_for_long_is_forgotten() -> None:
    seen = SeenPrefixes(tokens_per_block=2, blocks=3)
    seen.count([1, 1, 2, 2])
    seen.count([3, 3])
    assert seen.count([1, 1, 2, 2]) == 4  # used again: [3, 3] is the oldest now
    seen.count([4, 4])
    assert seen.count([3, 3]) == 0
    assert seen.count([1, 1]) == 0


def test_an_engine_without_reuse_or_pool_has_none() -> None:
    assert SeenPrefixes.of(0, 1000) is None
    assert SeenPrefixes.of(64, 0) is None
    assert SeenPrefixes.of(64, 63) is None


@given(st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=8), st.integers(1, 3))
def test_it_is_the_longest_common_beginning_in_blocks(prompts: list[list[int]], size: int) -> None:
    seen = SeenPrefixes(tokens_per_block=size, blocks=1000)
    for number, prompt in enumerate(prompts):
        common = 0
        for earlier in prompts[:number]:
            same = next((n for n in range(len(prompt), 0, -1) if prompt[:n] == earlier[:n]), 0)
            common = max(common, same)
        assert seen.count(prompt) == common // size * size
