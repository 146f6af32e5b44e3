"""One call, whatever serves it: trtbuild's front, NVIDIA's ensemble and BLS, llmapi, a bare engine."""

from __future__ import annotations

from typing import Any

import pytest

from tritonstream import (
    CancelHow,
    Finish,
    Guide,
    ModelKind,
    ProtocolError,
    TextDelta,
    Timings,
    TokenIds,
    UnsupportedError,
    Usage,
    UsageError,
)
from tritonstream.testing import FakeModel, Fault

WORDS = ["Once", " upon", " a", " time"]


def test_a_front_streams_text_and_then_tells_how_it_ended(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=WORDS))

    async def body(client: Any) -> None:
        events = [e async for e in client.stream("llm", "Tell me", max_tokens=3)]
        assert events[:3] == [TextDelta("Once"), TextDelta(" upon"), TextDelta(" a")]
        assert events[3:5] == [Finish("length"), Usage(prompt_tokens=2, completion_tokens=3)]
        assert isinstance(events[5], Timings)
        assert events[5].responses == 3
        assert len(events) == 6

    run(body, server.url)
    assert server.served[0].inputs["text_input"] == "Tell me"
    assert server.served[0].inputs["stream"] is True


@pytest.mark.parametrize(
    ("kind", "decoupled", "final_apart"),
    [
        (ModelKind.FRONT, True, False),
        (ModelKind.ENSEMBLE, True, True),
        (ModelKind.BLS, True, True),
        (ModelKind.BLS, False, False),
        (ModelKind.LLMAPI, True, True),
        (ModelKind.LLMAPI, False, False),
    ],
)
def test_generate_gives_the_same_text_from_every_kind(
    run: Any, serve: Any, kind: ModelKind, decoupled: bool, final_apart: bool
) -> None:
    server = serve(llm=FakeModel(kind=kind, reply=WORDS, decoupled=decoupled, final_apart=final_apart))

    async def body(client: Any) -> None:
        answer = await client.generate("llm", "Tell me", max_tokens=9, temperature=0.5, seed=2**63)
        assert answer.text == "Once upon a time"
        assert (await client.describe("llm")).kind is kind

    run(body, server.url)
    inputs = server.served[0].inputs
    prefix = "sampling_param_" if kind is ModelKind.LLMAPI else ""
    assert inputs[f"{prefix}max_tokens"] == 9
    assert inputs[f"{prefix}seed"] == 2**63
    assert inputs[f"{prefix}temperature"] == 0.5
    assert server.calls["ModelStreamInfer" if decoupled else "ModelInfer"] == 1


@pytest.mark.parametrize("kind", [ModelKind.ENSEMBLE, ModelKind.BLS])
def test_a_temperature_alone_samples_and_draws_anew(run: Any, serve: Any, kind: ModelKind) -> None:
    server = serve(llm=FakeModel(kind=kind, reply=WORDS))

    async def body(client: Any) -> None:
        for asked in ({}, {}, {"seed": 7}, {"top_k": 1}):
            await client.generate("llm", "Tell me", max_tokens=9, temperature=0.5, **asked)

    run(body, server.url)
    first, second, seeded, greedy = (request.inputs for request in server.served)
    assert first["top_p"] == second["top_p"] == seeded["top_p"] == 1.0
    assert first["seed"] != second["seed"]
    assert seeded["seed"] == 7
    assert not {"top_p", "seed"} & greedy.keys()


def test_an_engine_takes_and_gives_ids_where_there_is_no_tokenizer(run: Any, serve: Any) -> None:
    server = serve(engine=FakeModel(kind=ModelKind.ENGINE, reply=[5, (6, 7), 8]))

    async def body(client: Any) -> None:
        events = [e async for e in client.stream("engine", [1, 2, 3], max_tokens=10, top_k=4)]
        assert events[:3] == [TokenIds((5,)), TokenIds((6, 7)), TokenIds((8,))]
        assert events[3:5] == [Finish("stop"), Usage(3, 4)]
        with pytest.raises(UnsupportedError, match="bare engine"):
            await client.generate("engine", "text", max_tokens=3)

    run(body, server.url)
    assert server.served[0].inputs["input_ids"] == [1, 2, 3]
    assert server.served[0].inputs["input_lengths"] == 3
    assert server.served[0].inputs["runtime_top_k"] == 4


def test_old_engines_are_given_the_names_that_they_know(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(kind=ModelKind.ENSEMBLE, without=frozenset({"seed"})))

    async def body(client: Any) -> None:
        with pytest.raises(UnsupportedError, match=r"'seed'.*seed or random_seed"):
            await client.generate("llm", "x", max_tokens=1, seed=7)

    run(body, server.url)


def test_characters_cut_over_responses_come_out_whole(run: Any, serve: Any) -> None:
    data = "聪明 🎈é".encode() + b"\xff!"
    server = serve(llm=FakeModel(reply=[data[i : i + 1] for i in range(len(data))]))

    async def body(client: Any) -> None:
        events = [e async for e in client.stream("llm", "x")]
        pieces = [event.text for event in events if isinstance(event, TextDelta)]
        assert pieces == ["聪", "明", " ", "🎈", "é", "\ufffd", "!"]

    run(body, server.url)


def test_bls_that_repeats_all_text_is_read_as_deltas(run: Any, serve: Any) -> None:
    whole = "聪明的".encode()
    reply = [whole[:end] for end in (3, 5, 7, 9)]  # the second and third end within a character
    server = serve(
        bls=FakeModel(
            kind=ModelKind.BLS, reply=reply, final_apart=True, parameters={"accumulate_tokens": "True"}
        )
    )

    async def body(client: Any) -> None:
        events = [e async for e in client.stream("bls", "x", max_tokens=9)]
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["聪", "明", "的"]

    run(body, server.url)


def test_stop_strings_are_exact_also_where_the_server_leaves_them_in(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(kind=ModelKind.BLS, reply=["Yes.", "\n\nUs", "er: more", " and more"]))

    async def body(client: Any) -> None:
        answer = await client.generate("llm", "x", max_tokens=50, stop=["\n\nUser:"])
        assert (answer.text, answer.finish_reason) == ("Yes.", "stop")

    run(body, server.url)
    assert server.served[0].inputs["stop_words"] == ["\n\nUser:"]


def test_chat_goes_to_the_front_as_messages(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())
    messages = [{"role": "user", "content": "Wie heißt du?"}]

    async def body(client: Any) -> None:
        assert (await client.chat("llm", messages)).text == "Hello, world!"
        async with await client.chat("llm", messages, stream=True) as stream:
            assert [piece async for piece in stream.text_deltas()] == ["Hello", ",", " world", "!"]

    run(body, server.url)
    assert server.served[0].inputs["messages"] == '[{"role": "user", "content": "Wie heißt du?"}]'


def test_parameters_reach_their_inputs(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        await client.generate(
            "llm",
            "x",
            top_p=0.9,
            repetition_penalty=1.1,
            bad_words=["bad"],
            embedding_bias={" yes": 2.0, " no": -1.5},
            lora=17,
            guide=Guide.json_schema({"type": "object"}),
            inputs={"end_id": 5},
            deadline_s=20,
        )

    run(body, server.url)
    inputs = server.served[0].inputs
    assert inputs["bad_words"] == ["bad"]
    assert inputs["embedding_bias_words"] == [" yes", " no"]
    assert inputs["embedding_bias_weights"] == [2.0, -1.5]
    assert inputs["lora_task_id"] == 17
    assert inputs["guided_decoding_guide_type"] == "json_schema"
    assert inputs["guided_decoding_guide"] == '{"type": "object"}'
    assert inputs["end_id"] == 5
    assert 19_000 <= inputs["timeout_ms"] <= 20_000


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"max_token": 3}, UsageError, "did you mean 'max_tokens'"),
        ({"max_tokens": 0}, UsageError, "from 1 to"),
        ({"max_tokens": 2**40}, UsageError, "2.31"),
        ({"temperature": float("nan")}, UsageError, "at least 0"),
        ({"top_p": 1.5}, UsageError, "from 0 to 1"),
        ({"seed": -1}, UsageError, "2\\^64"),
        ({"stop": [1]}, UsageError, "takes strings"),
        ({"stop": 5}, UsageError, "takes strings"),
        ({"priority": 1}, UnsupportedError, "executor"),
        ({"lora": "name"}, UnsupportedError, "it takes a task id"),
        ({"inputs": {"nothing": 1}}, UnsupportedError, "no input 'nothing'"),
        ({"deadline_s": -1}, UsageError, "above 0"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    run: Any, serve: Any, params: dict[str, Any], error: type[Exception], message: str
) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises(error, match=message):
            await client.generate("llm", "x", **params)

    run(body, server.url)
    assert server.served == []


@pytest.mark.parametrize("prompt", ["", b"bytes", None, 5, "\ud800"])
def test_prompts_that_are_no_text_are_refused(run: Any, serve: Any, prompt: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises(UsageError):
            await client.generate("llm", prompt)

    run(body, server.url)


@pytest.mark.parametrize("messages", [[], "hello", [{"content": "x"}], [5]])
def test_messages_of_a_wrong_shape_are_refused(run: Any, serve: Any, messages: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises(UsageError):
            await client.chat("llm", messages)

    run(body, server.url)


def test_describe_says_what_the_model_is_and_how_it_is_cancelled(run: Any, serve: Any) -> None:
    engine = FakeModel(kind=ModelKind.ENGINE)
    ensemble = FakeModel(kind=ModelKind.ENSEMBLE, steps=("pre", "engine", "post"))
    server = serve(engine=engine, ens=ensemble, llm=FakeModel(), api=FakeModel(kind=ModelKind.LLMAPI))

    async def body(client: Any) -> None:
        front = await client.describe("llm")
        assert {"chat", "structured_output", "logprobs", "deadline"} <= front.features
        assert front.cancel.how is CancelHow.NATIVE
        assert "chat" not in (await client.describe("api")).features
        described = await client.describe("ens")
        assert described.cancel.how is CancelHow.STOP_REQUEST
        assert described.cancel.engine == "engine"
        assert "stop-request" in str(described)

    run(body, server.url)
    engine.instances = 2

    async def two_instances(client: Any) -> None:
        described = await client.describe("ens")
        assert described.cancel.how is CancelHow.NONE
        assert "2 instances" in described.cancel.why

    run(two_instances, server.url)
    del server.models["engine"]

    async def unknown(client: Any) -> None:
        assert (await client.describe("ens")).cancel.how is CancelHow.NONE

    run(unknown, server.url)


def test_a_config_is_read_once(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        for _ in range(3):
            await client.generate("llm", "x")

    run(body, server.url)
    assert server.calls["ModelConfig"] == 1


def test_several_answers_come_whole_from_a_front_and_streamed_from_others(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(several=True, reply=["one", "two"]), bls=FakeModel(kind=ModelKind.BLS))

    async def body(client: Any) -> None:
        answer = await client.generate("llm", "x", n=2)
        assert [choice.text for choice in answer.choices] == ["one", "two"]
        assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]
        with pytest.raises(UnsupportedError, match="which of several"):
            await client.generate("llm", "x", n=2, token_ids=True)
        answer = await client.generate("bls", "x", n=2, max_tokens=5)
        assert [choice.text for choice in answer.choices] == ["Hello, world!"] * 2
        server.models["llm"].reply = ["one"]
        with pytest.raises(ProtocolError, match="2 answers were asked for and 1 came"):
            await client.generate("llm", "x", n=2)

    run(body, server.url)
    assert "stream" not in server.served[0].inputs
    assert server.served[1].inputs["stream"] is True


def test_what_the_engine_was_not_set_up_for_is_refused_before_anything_is_sent(run: Any, serve: Any) -> None:
    engine = FakeModel(kind=ModelKind.ENGINE, parameters={"guided_decoding_backend": ""})
    front = FakeModel(parameters={"engine_model": "engine"})
    server = serve(engine=engine, llm=front, ens=FakeModel(kind=ModelKind.ENSEMBLE, steps=("engine",)))

    async def body(client: Any) -> None:
        for name in server.models:
            described = await client.describe(name)
            assert "structured_output" not in described.features
            assert "embedding_bias" in described.features
            prompt = [1] if name == "engine" else "x"
            with pytest.raises(UnsupportedError, match="guided_decoding_backend"):
                await client.generate(name, prompt, max_tokens=5, guide=Guide.regex("a+"))
        assert (await client.describe("llm")).cancel.how is CancelHow.NATIVE

    run(body, server.url)
    assert server.served == []
    engine.parameters = {"guided_decoding_backend": "xgrammar"}

    async def guided(client: Any) -> None:
        assert "structured_output" in (await client.describe("llm")).features

    run(guided, server.url)


@pytest.mark.parametrize("kind", [ModelKind.FRONT, ModelKind.ENGINE, ModelKind.ENSEMBLE])
@pytest.mark.parametrize("coded", [True, False])
def test_what_only_the_engine_knows_that_it_cannot_is_unsupported_too(
    run: Any, serve: Any, kind: ModelKind, coded: bool
) -> None:
    said = "lora_task_id cannot be honoured by the CPU engine: it serves the base weights [UNSUPPORTED]"
    reply = [5] if kind is ModelKind.ENGINE else ["a"]
    server = serve(llm=FakeModel(kind=kind, reply=reply, faults=[Fault("error", 0, message=said)]))
    server.coded_errors = coded

    async def body(client: Any) -> None:
        prompt = [1] if kind is ModelKind.ENGINE else "x"
        with pytest.raises(UnsupportedError, match=r"base weights( \[model|$)"):
            await client.generate("llm", prompt, max_tokens=5, lora=1)

    run(body, server.url)
    assert len(server.served) == 1  # another try would end alike


def test_what_the_engine_refuses_is_not_offered_and_not_sent(run: Any, serve: Any) -> None:
    listed = "bad_words_list,embedding_bias,lora_task_id"
    engine = FakeModel(kind=ModelKind.ENGINE, parameters={"unsupported_inputs": listed})
    server = serve(llm=FakeModel(parameters={"engine_model": "engine"}), engine=engine)

    async def body(client: Any) -> None:
        described = await client.describe("llm")
        assert described.features >= {"chat", "n", "seed"}
        assert described.features.isdisjoint({"embedding_bias", "lora"})
        for asked, name in (
            ({"embedding_bias": {"yes": 1.0}}, "embedding_bias"),
            ({"lora": 3}, "lora_task_id"),
            ({"bad_words": ["no"]}, "bad_words_list"),
        ):
            with pytest.raises(UnsupportedError, match=f"engine refuses the input {name}"):
                await client.generate("llm", "x", **asked)

    run(body, server.url)
    assert server.served == []
