"""Stop strings, against a search that tries every end of the text."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonstream.text import StopMatcher

FEW = st.text(alphabet="ab\n", max_size=30)
STOPS = st.lists(st.text(alphabet="ab\n", max_size=5), max_size=4)


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """What is left of ``text``, and the stop: the one complete first, of those the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(text=FEW, stops=STOPS, cuts=st.lists(st.integers(0, 30)))
def test_any_cut_gives_what_a_naive_search_gives(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher, out = StopMatcher(stops), ""
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for begin, end in itertools.pairwise(places):
        out += matcher.feed(text[begin:end])
        if matcher.matched is None:
            seen = text[:end]
            held = max(
                (n for stop in stops for n in range(1, len(stop)) if seen.endswith(stop[:n])), default=0
            )
            assert matcher.held == seen[len(seen) - held :]  # no more than what may begin a stop
    assert (out + matcher.flush(), matcher.matched) == naive(text, stops)


def test_a_stop_may_span_chunks() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert [matcher.feed(part) for part in ("Yes.\n", "\nUs", "er:", " and more")] == ["Yes.", "", "", ""]
    assert matcher.matched == "\n\nUser:"


def test_a_stop_inside_another_that_is_complete_first_wins() -> None:
    matcher = StopMatcher(["abc", "b"])
    assert matcher.feed("xabc") == "xa"
    assert matcher.matched == "b"


def test_nothing_and_empty_stops_never_match() -> None:
    for stops in ([], [""]):
        matcher = StopMatcher(stops)
        assert matcher.feed("any text") == "any text"
        assert matcher.matched is None


def test_stops_compare_by_code_point() -> None:
    matcher = StopMatcher(["é"])
    assert matcher.feed("e\u0301") == "e\u0301"  # the same to the eye, another text
    assert matcher.feed("é") == ""
    assert matcher.matched == "é"


@pytest.mark.parametrize("size", [200, 2000])
def test_time_grows_with_the_text_not_with_the_stops(size: int) -> None:
    stop = "a" * size + "b"
    matcher = StopMatcher([stop, *(f"a{n}" for n in range(50))])
    begun_s = time.thread_time()
    fed = sum(len(matcher.feed("a")) for _ in range(20_000))
    assert fed == 20_000 - size  # all but what may begin the stop
    assert time.thread_time() - begun_s < 2.0  # some 20 ms; a search anew for each character takes minutes
