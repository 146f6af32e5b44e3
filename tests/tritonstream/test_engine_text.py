"""A bare engine with the client's own tokenizer: text in, text out, as exact as through the front."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.real_tokenizers import SAMPLES, tokenizer, tokenizer_spec

from tritonstream import (
    Client,
    Finish,
    ModelKind,
    TextDelta,
    TokenIds,
    UnsupportedError,
    UsageError,
    embedding_bias,
)
from tritonstream.testing import FakeModel, FakeTriton

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer folder as Hugging Face writes it, with two ids that end an answer."""
    made = tmp_path_factory.mktemp("tokenizer")
    (made / "tokenizer.json").write_text(json.dumps(tokenizer_spec("smollm2")))
    config = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (made / "tokenizer_config.json").write_text(json.dumps(config))
    (made / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    return made


def engine(text: str, **options: Any) -> FakeModel:
    """An engine that says this, a token a response, and then the id that ends it."""
    reply = [*tokenizer("smollm2").encode(text, add_special_tokens=False).ids, 2]
    return FakeModel(kind=ModelKind.ENGINE, reply=reply, **options)


@pytest.mark.parametrize("decoupled", [True, False])
def test_text_goes_in_and_comes_out(run: Any, serve: Any, folder: Path, decoupled: bool) -> None:
    said = "Straße 聪明 🤝🏽!"
    server = serve(engine=engine(said, decoupled=decoupled))

    async def body(client: Any) -> None:
        answer = await client.generate("engine", "Say it", max_tokens=100)
        assert (answer.text, answer.finish_reason) == (said, "stop")
        assert "".join(tokenizer("smollm2").decode(list(answer.token_ids))) == said

    run(body, server.url, tokenizer=folder)
    inputs = server.served[0].inputs
    assert inputs["input_ids"] == tokenizer("smollm2").encode("Say it").ids
    assert inputs["end_id"] == 2
    assert inputs["stop_words_list"] == [0, 1]  # the other end id, and where its sequence ends


def test_characters_are_whole_in_every_event(run: Any, serve: Any, folder: Path) -> None:
    said = "聪🤝é"
    server = serve(engine=engine(said))

    async def body(client: Any) -> None:
        events = [event async for event in client.stream("engine", "x", max_tokens=100)]
        pieces = [event.text for event in events if isinstance(event, TextDelta)]
        assert "".join(pieces) == said
        assert "\ufffd" not in pieces
        assert sum(len(event.ids) for event in events if isinstance(event, TokenIds)) > len(pieces)

    run(body, server.url, tokenizer={"engine": folder})


def test_a_stop_string_cancels_the_engine(run: Any, serve: Any, folder: Path) -> None:
    server = serve(engine=engine("one two three STOP " + "more " * 200, between_tokens_s=0.01))

    async def body(client: Any) -> None:
        answer = await client.generate("engine", "x", max_tokens=500, stop=" STOP")
        assert (answer.text, answer.finish_reason) == ("one two three", "stop")

    run(body, server.url, tokenizer=folder)
    assert server.wait_for(lambda: server.served[0].end == "cancelled")
    assert server.served[0].sent < 100


def test_length_is_told_from_stop_by_counting(run: Any, serve: Any, folder: Path) -> None:
    server = serve(engine=engine("one two three four five"))

    async def body(client: Any) -> None:
        events = [event async for event in client.stream("engine", "x", max_tokens=3)]
        assert Finish("length") in events

    run(body, server.url, tokenizer=folder)


def test_chat_is_rendered_here_without_a_second_bos(run: Any, serve: Any, folder: Path) -> None:
    server = serve(engine=engine("yes"), ens=FakeModel(kind=ModelKind.ENSEMBLE), llm=FakeModel())
    messages = [{"role": "user", "content": "Well?"}]
    rendered = "<|im_start|>user\nWell?<|im_end|>\n<|im_start|>assistant\n"

    async def body(client: Any) -> None:
        assert (await client.chat("engine", messages, max_tokens=9)).text == "yes"
        await client.chat("ens", messages, max_tokens=9)
        await client.chat("llm", messages, client_template=True)
        await client.chat("llm", messages)

    run(body, server.url, tokenizer=folder)
    assert (
        server.served[0].inputs["input_ids"]
        == tokenizer("smollm2").encode(rendered, add_special_tokens=False).ids
    )
    assert server.served[1].inputs["text_input"] == rendered
    assert server.served[2].inputs["text_input"] == rendered
    assert server.served[2].inputs["add_special_tokens"] is False
    assert "messages" in server.served[3].inputs


def test_words_become_ids_without_bos(run: Any, serve: Any, folder: Path) -> None:
    server = serve(engine=engine("x"))
    yes = tokenizer("smollm2").encode(" yes", add_special_tokens=False).ids

    async def body(client: Any) -> None:
        await client.generate("engine", "x", max_tokens=2, bad_words=[" yes"], embedding_bias={" yes": 5.0})

    run(body, server.url, tokenizer=folder)
    bias = server.served[0].inputs["embedding_bias"]
    assert {at: value for at, value in enumerate(bias) if value} == dict.fromkeys(yes, 5.0)
    assert server.served[0].inputs["bad_words_list"] == [*yes, len(yes)]
    padded = embedding_bias({" yes": 5.0}, folder, vocab_size=50_000)
    assert padded.shape == (50_000,)
    assert padded.dtype == np.float32
    assert set(np.flatnonzero(padded)) == set(yes)
    with pytest.raises(UsageError, match="finite"):
        embedding_bias({" yes": float("inf")}, folder)


def test_without_a_tokenizer_it_says_what_is_needed(run: Any, serve: Any, tmp_path: Path) -> None:
    server = serve(engine=engine("x"), ens=FakeModel(kind=ModelKind.ENSEMBLE))

    async def body(client: Any) -> None:
        with pytest.raises(UnsupportedError, match="tokenizer=FOLDER"):
            await client.generate("engine", "x", max_tokens=2)
        with pytest.raises(UnsupportedError, match="tokenizer=FOLDER"):
            await client.chat("ens", [{"role": "user", "content": "x"}], max_tokens=2)

    run(body, server.url)

    async def empty(client: Any) -> None:
        with pytest.raises(UsageError, match=r"no tokenizer\.json"):
            await client.generate("engine", "x", max_tokens=2)

    run(empty, server.url, tokenizer=tmp_path)


@pytest.fixture(scope="module")
def playing(folder: Path) -> Any:
    """An engine whose answer is set by the test, and a client of it."""
    model = FakeModel(kind=ModelKind.ENGINE)
    with FakeTriton({"engine": model}) as server, Client(server.url, tokenizer=folder) as client:
        yield model, client


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_tokens_in_any_portions_decode_as_the_whole(playing: Any, data: Any) -> None:
    model, client = playing
    ids = data.draw(st.lists(st.integers(3, 49_151), min_size=1, max_size=30))
    ids += tokenizer("smollm2").encode(data.draw(st.sampled_from(SAMPLES)), add_special_tokens=False).ids
    edges = sorted({0, len(ids), *data.draw(st.lists(st.integers(0, len(ids)), max_size=6))})
    model.reply = [tuple(ids[a:b]) for a, b in pairwise(edges)]
    answer = client.generate("engine", "x", max_tokens=1000)
    assert answer.text == tokenizer("smollm2").decode(ids)
    assert answer.token_ids == tuple(ids)
