"""Characters that arrive in pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.real_tokenizers import SAMPLES

from tritonstream.text import PromptError, Utf8Stream, decode_input

# bytes that begin, continue and break characters more often than random ones
RAW = st.lists(
    st.sampled_from([b"\xe8", b"\x81", b"\xaa", b"\xf0\x9f", b"\xa4\x9d", b"\xc0", b"\xed\xa0", b"\xf4\x90",
                     b"\xff", b"a", "é".encode(), "👨‍👩‍👧".encode(), b"\x80"]),
    max_size=12,
).map(b"".join)  # fmt: skip


@given(data=RAW | st.binary(max_size=40) | st.text().map(str.encode), cuts=st.lists(st.integers(0, 60)))
def test_any_cut_gives_what_python_decodes_of_the_whole(data: bytes, cuts: list[int]) -> None:
    stream, out = Utf8Stream(), ""
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for begin, end in itertools.pairwise(places):
        out += stream.feed(data[begin:end])
        assert len(stream.held) <= 3
        # what is out already is certain: it begins every way in which the text can go on
        assert data.decode("utf-8", "replace").startswith(out)
    assert out + stream.flush() == data.decode("utf-8", errors="replace")


@pytest.mark.parametrize("text", SAMPLES)
def test_characters_come_out_with_their_last_byte(text: str) -> None:
    stream = Utf8Stream()
    for char in text:
        *first, last = (bytes([byte]) for byte in char.encode())
        assert [stream.feed(byte) for byte in first] == [""] * len(first)
        assert stream.feed(last) == char


def test_a_byte_that_can_begin_nothing_is_told_at_once() -> None:
    assert Utf8Stream().feed(b"\xc0") == "\ufffd"


def test_a_character_that_never_ends_becomes_one_mark() -> None:
    stream = Utf8Stream()
    assert stream.feed(b"ok\xf0\x9f\xa4") == "ok"
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_broken_inputs_are_refused_with_their_place() -> None:
    with pytest.raises(PromptError, match=r"text_input is not UTF-8: byte 0xff at offset 2"):
        decode_input(b"ok\xff", "text_input")
    with pytest.raises(PromptError, match=r"lone surrogate \('\\ud800' at character 1\)"):
        decode_input("a\ud800", "messages")
    assert decode_input("héllo".encode(), "text_input") == "héllo"
