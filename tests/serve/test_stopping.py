from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.serve.local.tensorrtllm.stopping import StopWatch, split_words


def test_words_are_cut_at_their_offsets() -> None:
    # preprocessing's layout: flat ids, end of each word, padded with 0 and -1
    assert split_words([5, 6, 7, 8, 0], [2, 3, 4, -1, -1]) == ((5, 6), (7,), (8,))


@pytest.mark.parametrize(("ids", "offsets"), [([], []), ([0], [-1]), ([0, 0], [-1, -1])])
def test_no_word(ids: list[int], offsets: list[int]) -> None:
    assert split_words(ids, offsets) == ()


def test_an_offset_outside_of_the_ids_is_an_error() -> None:
    with pytest.raises(ValueError, match="offset 9"):
        split_words([5, 6], [9])
    with pytest.raises(ValueError, match="must rise"):
        split_words([5, 6, 7], [2, 1])


def test_the_word_itself_is_kept_and_nothing_after_it() -> None:
    watch = StopWatch([(7, 8)])
    assert watch.feed([1, 7]) is None
    assert watch.feed([8, 9, 7, 8]) == 1


def _reference(ids: list[int], words: list[tuple[int, ...]]) -> int | None:
    """The shortest beginning that ends with a word, by trying them all."""
    for end in range(1, len(ids) + 1):
        if any(tuple(ids[:end][-len(word) :]) == word for word in words):
            return end
    return None


_ids = st.lists(st.integers(0, 3), max_size=30)
_words = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), max_size=4)


@given(ids=_ids, words=_words, cuts=st.lists(st.integers(0, 30)))
def test_the_same_place_however_the_ids_arrive(
    ids: list[int], words: list[tuple[int, ...]], cuts: list[int]
) -> None:
    watch, kept, found = StopWatch(words), 0, None
    bounds = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    for start, end in pairwise(bounds):
        taken = watch.feed(ids[start:end])
        if taken is not None:
            found = kept + taken
            break
        kept += end - start
    assert found == _reference(ids, words)
