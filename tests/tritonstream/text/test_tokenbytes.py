"""Table look-ups against Hugging Face's decode, over real vocabularies."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.real_tokenizers import NAMES, SAMPLES, table, tokenizer, tokenizer_spec

from tritonstream.text import TextStream, TokenBytes, TokenizerError

_BYTE = re.compile("<0x([0-9A-F]{2})>")
PICKS = st.lists(st.floats(0, 1, exclude_max=True), max_size=24)


def _ids(name: str, picks: list[float]) -> list[int]:
    return [int(pick * len(table(name))) for pick in picks]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", SAMPLES)
def test_a_text_comes_back(name: str, text: str) -> None:
    ids = tokenizer(name).encode(text, add_special_tokens=False).ids
    assert table(name).decode(ids) == tokenizer(name).decode(ids) == text


@pytest.mark.parametrize("name", NAMES)
@given(picks=PICKS)
@settings(max_examples=300, deadline=None)
def test_any_ids_decode_as_hugging_face_decodes_them(name: str, picks: list[float]) -> None:
    ids = _ids(name, picks)
    assume(not _drops_characters(name, ids))
    ours, theirs = table(name).decode(ids), tokenizer(name).decode(ids)
    # byte fallback gives one U+FFFD a byte there, one for each ill-formed part here (as Python decodes)
    assert _collapsed(ours) == _collapsed(theirs)


def _drops_characters(name: str, ids: list[int]) -> bool:
    """Whether Hugging Face loses characters: a run of byte tokens that is ill-formed is all U+FFFD there."""
    words = [_BYTE.fullmatch(tokenizer(name).id_to_token(id_) or "") for id_ in ids]
    for is_byte, run in itertools.groupby(words, key=bool):
        if is_byte:
            text = bytes(int(found[1], 16) for found in run if found).decode(errors="replace")
            if "\ufffd" in text and text.strip("\ufffd"):
                return True
    return False


def _collapsed(text: str) -> str:
    while "\ufffd\ufffd" in text:
        text = text.replace("\ufffd\ufffd", "\ufffd")
    return text


@pytest.mark.parametrize("name", NAMES)
@given(picks=PICKS, cuts=st.lists(st.integers(0, 24)))
@settings(max_examples=300, deadline=None)
def test_pieces_of_any_size_give_the_whole(name: str, picks: list[float], cuts: list[int]) -> None:
    ids = _ids(name, picks)
    stream = TextStream(table(name))
    places = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    parts = [stream.push(ids[begin:end]) for begin, end in itertools.pairwise(places)]
    assert "".join(parts) + stream.flush() == table(name).decode(ids)


@pytest.mark.parametrize("name", NAMES)
def test_text_that_was_given_out_is_never_taken_back(name: str) -> None:
    for text in SAMPLES:
        stream, out = TextStream(table(name)), ""
        for id_ in tokenizer(name).encode(text, add_special_tokens=False).ids:
            out += stream.push([id_])
            assert text.startswith(out)
        assert out == text  # nothing is left for the flush: each token that ends a character gives it out


def test_special_tokens_are_skipped_unless_asked_for() -> None:
    spec = tokenizer_spec("smollm2")
    assert TokenBytes(spec).decode([1, 2]) == ""
    assert TokenBytes(spec, skip_special_tokens=False).decode([1, 2]) == "<|im_start|><|im_end|>"


@pytest.mark.parametrize("id_", [-1, 49152, 10**9])
def test_ids_outside_the_vocabulary_give_nothing(id_: int) -> None:
    (hello,) = tokenizer("smollm2").encode("Hello").ids
    assert table("smollm2").decode([id_, hello, id_]) == "Hello"
    assert not table("smollm2").is_known(id_)


def test_only_the_first_space_of_a_sentencepiece_text_is_dropped() -> None:
    ids = tokenizer("mistral-v1").encode("Paris is", add_special_tokens=False).ids
    assert table("mistral-v1").decode(ids) == "Paris is"
    one_by_one = TextStream(table("mistral-v1"))
    assert [one_by_one.push([id_]) for id_ in ids] == ["Paris", " is"]
    continued = TextStream(table("mistral-v1"), continues=True)
    assert continued.push(ids) == " Paris is"


def _tiny(
    decoder: object, vocab: dict[str, int] | None = None, added: list[object] | None = None
) -> TokenBytes:
    vocab = vocab or {"▁a": 0, "▁": 1, "b": 2, "<0xE8>": 3, "<0x81>": 4, "<0xAA>": 5, "##c": 6, ".": 7}
    spec = {"model": {"type": "BPE", "vocab": vocab}, "decoder": decoder, "added_tokens": added or []}
    return TokenBytes.from_json(json.dumps(spec))


def test_byte_tokens_make_a_character() -> None:
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    stream = TextStream(_tiny(decoder))
    assert [stream.push([id_]) for id_ in (3, 4, 5, 2)] == ["", "", "聪", "b"]
    broken = TextStream(_tiny(decoder))
    # E8 81 begins a character that "b" cuts off: one U+FFFD
    assert [broken.push([id_]) for id_ in (3, 4, 2)] == ["", "", "\ufffdb"]


def test_metaspace_drops_the_spaces_of_the_first_token_only() -> None:
    table_ = _tiny({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})
    assert table_.decode([0, 0, 1, 2]) == "a a b"
    assert table_.decode([1, 0]) == " a"  # the first token was the space alone
    never = _tiny({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})
    assert never.decode([0, 0]) == " a a"


def test_wordpiece_joins_words() -> None:
    table_ = _tiny({"type": "WordPiece", "prefix": "##", "cleanup": True})
    assert table_.decode([2, 6, 2, 7]) == "bc b."


def test_added_tokens_of_a_byte_level_tokenizer_are_text() -> None:
    added = [{"id": 9, "content": "é½", "special": False}]
    table_ = _tiny({"type": "ByteLevel"}, {"Ã©": 0, "½": 1}, added)
    assert table_.decode([9]) == "é½"  # not the bytes E9 BD that these characters spell in the alphabet
    assert table_.decode([0]) == "é"


@pytest.mark.parametrize(
    ("decoder", "named"),
    [
        (None, "no decoder"),
        ({"type": "BPEDecoder", "suffix": "</w>"}, "'BPEDecoder'"),
        ({"type": "CTC"}, "'CTC'"),
        ({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteLevel"}]}, "fused text"),
        (
            {
                "type": "Sequence",
                "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "stop": 1}],
            },
            "end",
        ),
        ({"type": "Replace", "pattern": {"Regex": "x+"}, "content": ""}, "no literal"),
    ],
)
def test_decoders_that_cannot_stream_are_refused_by_name(decoder: object, named: str) -> None:
    with pytest.raises(TokenizerError, match=named):
        _tiny(decoder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model": {}}', '{"model": {"vocab": {}}, "decoder": {"type": "Fuse"}}']
)
def test_what_is_no_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(TokenizerError):
        TokenBytes.from_json(text)
