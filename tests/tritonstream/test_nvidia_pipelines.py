"""NVIDIA's classic ensemble and BLS, which decode each response by itself: no character is broken here."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.real_tokenizers import SAMPLES, tokenizer, tokenizer_spec

from tritonstream import BrokenCharacters, CancelHow, Characters, Finish, ModelKind, TextDelta
from tritonstream.testing import FakeModel, FakeTriton

TEXTS = {
    "Thai": "สวัสดีครับ ภาษาไทย",
    "Arabic": "مرحبًا بالعالَم، كيف الحال؟",
    "Devanagari": "नमस्ते दुनिया क्षत्रिय",
    "emoji": "👨‍👩‍👧‍👦 🤝🏽 🏳️‍🌈 🇩🇪",
    "combining": "e\u0301 a\u0308\u0323 Z\u0351\u036b\u0343",
    "CJK extension B": "𠮷野家 𠀋𡈽𠂉",
    "mixed": "聪明 naïve Ελλάδα 한국어 עברית",
}
BLS = {"tensorrt_llm_model_name": "engine"}


def pipeline(kind: ModelKind, ids: list[int], name: str) -> FakeModel:
    """What NVIDIA's post-processing makes of these ids: each response is decoded alone."""

    def reply(inputs: Mapping[str, Any]) -> list[str]:
        decode = tokenizer(name).decode
        return [decode([id_]) for id_ in ids] if inputs.get("stream") else [decode(ids)]

    parameters = BLS if kind is ModelKind.BLS else {}
    return FakeModel(
        kind=kind, reply=reply, steps=("pre", "engine", "post"), parameters=parameters, final_apart=True
    )


@pytest.fixture(scope="module", params=["smollm2", "tekken"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A tokenizer by name, and its folder."""
    made = tmp_path_factory.mktemp("tokenizer")
    (made / "tokenizer.json").write_text(json.dumps(tokenizer_spec(request.param)))
    return request.param, made


def models(kind: ModelKind, text: str, name: str) -> dict[str, FakeModel]:
    """A pipeline that says this, and the engine behind it."""
    ids = tokenizer(name).encode(text, add_special_tokens=False).ids
    return {"llm": pipeline(kind, ids, name), "engine": FakeModel(kind=ModelKind.ENGINE, reply=ids)}


@pytest.mark.parametrize("kind", [ModelKind.ENSEMBLE, ModelKind.BLS])
def test_with_a_tokenizer_every_character_streams_whole(
    run: Any, serve: Any, folder: tuple[str, Path], kind: ModelKind
) -> None:
    name, path = folder
    server: FakeTriton = serve()

    async def body(client: Any) -> None:
        for said in TEXTS.values():
            server.models = models(kind, said, name)
            stream = client.stream("llm", "Say it", max_tokens=500)
            pieces = [event.text async for event in stream if isinstance(event, TextDelta)]
            assert "".join(pieces) == said
            assert not any("\ufffd" in piece for piece in pieces)
            assert len(pieces) > 1
            assert stream.model.name == "engine"  # it says which way was taken
            assert stream.model.cancel.how is CancelHow.NATIVE
            for stop in (said[3], said[2:4]):  # within and between characters of several tokens
                answer = await client.generate("llm", "x", max_tokens=500, stop=stop)
                assert answer.text == said[: said.index(stop)]

    run(body, server.url, tokenizer={"llm": path})
    assert {served.model for served in server.served} == {"engine"}


@pytest.mark.parametrize("kind", [ModelKind.ENSEMBLE, ModelKind.BLS])
def test_without_one_a_whole_answer_is_exact_and_a_stream_says_what_broke(
    run: Any, serve: Any, kind: ModelKind
) -> None:
    server = serve(**models(kind, said := TEXTS["mixed"], "smollm2"))

    async def body(client: Any) -> None:
        described = await client.describe("llm")
        assert described.characters is Characters.PER_CHUNK
        assert "characters: per-chunk" in str(described)
        assert (await client.generate("llm", "x", max_tokens=500)).text == said
        assert [answer.text async for answer in client.many("llm", ["x"], max_tokens=500)] == [said]
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            events = [event async for event in client.stream("llm", "x", max_tokens=500)]
        broken = [one.filename for one in told if one.category is BrokenCharacters]
        assert broken  # and no line of the package is blamed for it
        assert not [name for name in broken if "tritonstream/_" in name.replace("\\", "/")]
        assert any(isinstance(event, Finish) for event in events)

    run(body, server.url)
    assert [served.inputs.get("stream") for served in server.served] == [None, None, True]


def test_a_whole_answer_that_the_model_itself_broke_is_no_fault_of_streaming(
    run: Any, serve: Any, recwarn: pytest.WarningsRecorder
) -> None:
    server = serve(llm=FakeModel(kind=ModelKind.ENSEMBLE, reply=["a\ufffd"]))

    async def body(client: Any) -> None:
        assert (await client.generate("llm", "x", max_tokens=5)).text == "a\ufffd"

    run(body, server.url)
    assert not [one for one in recwarn if one.category is BrokenCharacters]


def test_other_servers_keep_characters_whole(run: Any, serve: Any) -> None:
    """A front, vLLM's backend, and a BLS that repeats its text."""
    repeating = {**BLS, "accumulate_tokens": "true"}
    server = serve(
        front=FakeModel(),
        vllm=FakeModel(kind=ModelKind.BLS, reply=["聪", "明"]),
        bls=FakeModel(kind=ModelKind.BLS, parameters=repeating, reply=["\ufffd", "聪", "聪明"]),
    )

    async def body(client: Any) -> None:
        for name in server.models:
            assert (await client.describe(name)).characters is Characters.WHOLE
        for name in ("vllm", "bls"):
            pieces = [p async for p in client.stream(name, "x", max_tokens=9).text_deltas()]
            assert pieces == ["聪", "明"]

    run(body, server.url)


def test_samples_are_what_they_say() -> None:
    """Some character of each text is made of several tokens, or the tests above show nothing."""
    assert SAMPLES
    for text in TEXTS.values():
        ids = tokenizer("smollm2").encode(text, add_special_tokens=False).ids
        assert any("\ufffd" in tokenizer("smollm2").decode([id_]) for id_ in ids), text
