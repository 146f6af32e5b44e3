"""Values that mean nothing are refused before anything is sent, with the name of what held them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tritonstream import (
    AsyncClient,
    Client,
    Degrade,
    Guide,
    Keepalive,
    ModelKind,
    Retry,
    ServerError,
    Timeouts,
    Tls,
    UsageError,
)
from tritonstream.testing import FakeModel, FakeTriton, Fault

NAN, INF, LONE = math.nan, math.inf, "a\ud800"

# each kind of value with what is none of it
NONSENSE: dict[str, tuple[list[str], list[Any]]] = {
    "whole numbers": (
        ["max_tokens", "min_tokens", "top_k", "seed", "n", "beam_width", "priority"],
        [-2, 1.5, "5", True, NAN, 2**70, [1]],
    ),
    "ids of tokens": (["end_id", "pad_id"], [-5, 2**40, 1.5, "x", True]),
    "numbers": (
        ["temperature", "top_p", "repetition_penalty", "presence_penalty", "frequency_penalty"],
        [NAN, INF, -INF, "hot", True, 1e300, [0.5]],
    ),
    "flags": (["logprobs", "token_ids", "perf_metrics", "add_special_tokens"], ["yes", 5, 0.0, []]),
    "strings": (["stop", "bad_words"], ["", [""], ["a", ""], b"x", [b"x"], LONE, [LONE], 5, [5], {"a": 1}]),
    "bias": (["embedding_bias"], [{}, {"a": NAN}, {"a": "b"}, {"": 1.0}, {5: 1.0}, {LONE: 1.0}, [1], "a"]),
    "adapters": (["lora"], ["", -1, 1.5, 2**70, True, LONE, "a\0b"]),
    "guides": (["guide"], ["json", 5, {"type": "object"}]),
    "ids of requests": (["request_id"], ["", 5, b"x", "a\0b", "a\nb", LONE, "x" * 100_000]),
    "metadata": (
        ["headers"],
        [
            5,
            {"a b": "x"},
            {"a-bin": "x"},
            {"a-bin": b"x"},
            {"a": "\n"},
            {"a": 5},
            {5: "a"},
            {"ä": "x"},
            {"a": "ä"},
            {"grpc-timeout": "1S"},
        ],
    ),
    "classes of traffic": (["traffic_class"], ["", "a b", 'a"b', "a\n", "ä", "x" * 65, b"x", 5, ["x"]]),
    "deadlines": (["deadline_s"], [0, -1, NAN, INF, "1", True, 1e300]),
    "named inputs": (["inputs"], [5, {5: 1}, {"end_id": "x"}, {"end_id": NAN}, {"end_id": {}}, {LONE: 1}]),
    "options": (["timeouts", "retry"], [5, None, "x"]),
    "steps": (["degrade"], [5, [5], "x", {"model": "x"}]),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_no_parameter_takes_what_is_none_of_its_kind(run: Any, serve: Any, kind: str) -> None:
    server = serve(llm=FakeModel())
    names, values = NONSENSE[kind]

    async def body(client: Any) -> None:
        for name in names:
            for value in values:
                with pytest.raises(UsageError) as caught:
                    await client.generate("llm", "x", **{name: value})
                assert name in str(caught.value) or name == "inputs"

    run(body, server.url)
    assert server.served == []


def test_no_prompt_conversation_or_name_is_taken_that_cannot_be_sent(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(), engine=FakeModel(kind=ModelKind.ENGINE))
    user = {"role": "user", "content": "x"}
    unsound: list[Any] = [5, b"x", LONE, ["x"], {"a": 1}, [5]]

    async def body(client: Any) -> None:
        for prompt in ("", LONE, b"x", 5, None, [1, 2], []):
            with pytest.raises(UsageError):
                await client.generate("llm", prompt)
        for ids in ([2**40], [-1], [True], [1.5], ["a"], [None], [], [1, [2]], 5):
            with pytest.raises(UsageError):
                await client.generate("engine", ids, max_tokens=5)
        for content in unsound:
            with pytest.raises(UsageError, match=r"content|surrogate"):
                await client.chat("llm", [user, {"role": "user", "content": content}])
        for messages in ([], "x", 5, [5], [{"content": "x"}], [{**user, "role": 5}], [{**user, "role": ""}]):
            with pytest.raises(UsageError):
                await client.chat("llm", messages)
        with pytest.raises(UsageError, match="neither content"):
            await client.chat("llm", [{"role": "user"}])
        with pytest.raises(UsageError, match="JSON"):
            await client.chat("llm", [{**user, "weight": NAN}])
        for tools in (5, [5], "x", {}, [{"a": NAN}]):
            with pytest.raises(UsageError, match="tools"):
                await client.chat("llm", [user], tools=tools)
        for model in ("", LONE, "a\0b", "x" * 100_000, 5, None):
            with pytest.raises(UsageError, match="model"):
                await client.generate(model, "x")
        for inputs in (5, {5: 1}, {"zz": 1}, [1]):
            with pytest.raises(UsageError):
                await client.infer("llm", inputs)
        with pytest.raises(UsageError, match="min_tokens is 9"):
            await client.generate("llm", "x", min_tokens=9, max_tokens=5)

    run(body, server.url)
    assert server.served == []


def test_what_is_unusual_and_right_is_taken(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=lambda inputs: [inputs["text_input"]]))

    async def body(client: Any) -> None:
        for prompt in ("\0", "a\0b", " ", "\ufffd", "👨‍👩‍👧", "𠮷"):
            answer = await client.generate("llm", prompt, stop=[], seed=2**64 - 1, end_id=-1, pad_id=None)
            assert answer.text == prompt
        await client.generate("llm", "x", stop=("\0", "\n"), headers={"X-User": "me"}, request_id="ä 1")

    run(body, server.url)


FAKES: list[Callable[[], object]] = [
    *[lambda kind=kind: Fault(kind) for kind in ("nope", "", 5, None)],  # type: ignore[misc]
    lambda: Fault("stall", at=-1),
    lambda: Fault("error", code="NOPE"),
    lambda: Fault("stall", times=0),
    lambda: FakeModel(first_token_s=-1),
    lambda: FakeModel(between_tokens_s=NAN),
    lambda: FakeModel(kind="front"),  # type: ignore[arg-type]
    lambda: FakeModel(reply="word"),
    lambda: FakeModel(instances=0),
    lambda: FakeModel(faults=["stall"]),  # type: ignore[list-item]
    lambda: FakeModel(without="seed"),  # type: ignore[arg-type]
    lambda: FakeTriton({"a": 5}),  # type: ignore[dict-item]
    lambda: FakeTriton({"": FakeModel()}),
    lambda: FakeTriton([]),  # type: ignore[arg-type]
    lambda: FakeTriton({}, port=99999),
]
OPTIONS: list[Callable[[], object]] = [
    lambda: Guide("nope", "x"),
    lambda: Guide("regex", ""),
    lambda: Guide.json_schema("{not json"),
    lambda: Guide.json_schema({"a": NAN}),
    *[lambda value=value: Timeouts(total_s=value) for value in (0, -1, NAN, INF, "x", True)],  # type: ignore[misc]
    *[lambda value=value: Retry(attempts=value) for value in (0, 1.5, "x", True)],  # type: ignore[misc]
    *[lambda value=value: Retry(budget_ratio=value) for value in (-1, NAN)],  # type: ignore[misc]
    *[lambda value=value: Degrade(max_tokens=value) for value in (0, -1, "x")],  # type: ignore[misc]
    *[lambda value=value: Degrade(model=value) for value in ("", 5, LONE)],  # type: ignore[misc]
    Degrade,
    lambda: Keepalive(interval_s=0),
    lambda: Guide.json_schema(5),  # type: ignore[arg-type]
    lambda: Tls(root_certificates="a path"),  # type: ignore[arg-type]
    lambda: Tls(root_certificates=b"no PEM"),
    lambda: Client(headers={"trace-bin": "x"}),
    lambda: Client(transport=5),  # type: ignore[arg-type]
    lambda: Client(channel_options=[("name",)]),  # type: ignore[list-item]
    *[lambda url=url: Client(url) for url in (5, "", "host", "http://x:1")],  # type: ignore[misc]
    *[lambda hosts=hosts: Client(endpoints=hosts) for hosts in (5, [], [5], "a:1")],  # type: ignore[misc]
    *[
        lambda name=name: Client(**{name: 5})  # type: ignore[misc]
        for name in ("timeouts", "retry", "degrade", "keepalive", "tls", "hooks", "tokenizer", "headers")
    ],
    *[lambda value=value: Client(traffic_class=value) for value in ("", "a b", 5)],  # type: ignore[misc]
]


@pytest.mark.parametrize("make", FAKES + OPTIONS)
def test_no_option_takes_nonsense(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        make()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_an_unknown_option_of_a_client_is_told_with_the_nearest(kind: Any) -> None:
    with pytest.raises(UsageError, match="unknown parameter 'timeout'; did you mean 'timeouts'"):
        kind("127.0.0.1:1", timeout=5)


@pytest.mark.parametrize(
    ("kind", "reply"),
    [
        (ModelKind.FRONT, [1, 2]),
        (ModelKind.FRONT, [None]),
        (ModelKind.FRONT, lambda inputs: "one text"),
        (ModelKind.FRONT, lambda inputs: None),
        (ModelKind.ENGINE, ["a"]),
    ],
)
def test_a_fake_says_what_its_reply_lacks(run: Any, serve: Any, kind: ModelKind, reply: Any) -> None:
    server = serve(llm=FakeModel(kind=kind, reply=reply))

    async def body(client: Any) -> None:
        with pytest.raises(ServerError, match=r"reply (gave|holds) "):
            await client.generate("llm", [1] if kind is ModelKind.ENGINE else "x", max_tokens=9)

    run(body, server.url)


def test_numpys_whole_numbers_are_counts_as_good(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(), engine=FakeModel(kind=ModelKind.ENGINE, reply=[1, 2, 3]))

    async def body(client: Any) -> None:
        answer = await client.generate("llm", "x", max_tokens=np.int64(2), seed=np.uint64(2**64 - 1))
        assert answer.text == "Hello,"
        assert (await client.generate("engine", [1], max_tokens=np.int32(2))).token_ids == (1, 2)
        with pytest.raises(UsageError, match=r"the prompt is ndarray.*tolist"):
            await client.generate("engine", np.array([1, 2]), max_tokens=2)
        with pytest.raises(UsageError, match="max_tokens"):
            await client.generate("llm", "x", max_tokens=np.bool_(True))
        with pytest.raises(UsageError, match="stream is 'yes'"):
            await client.chat("llm", [{"role": "user", "content": "x"}], stream="yes")

    run(body, server.url)


@pytest.mark.parametrize("prompts", ["one prompt", b"x", None, 5, {"role": "user"}])
def test_many_takes_no_single_prompt_for_a_list(run: Any, serve: Any, prompts: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises(UsageError, match="prompts is"):
            [one async for one in client.many("llm", prompts)]

    run(body, server.url)
    assert server.served == []


@pytest.mark.parametrize("size", [0, -1, 1.5, "x", True])
def test_a_number_of_requests_at_a_time_is_one(run: Any, serve: Any, size: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises(UsageError, match="concurrency"):
            async for _ in client.many("llm", ["x"], concurrency=size):
                pass

    run(body, server.url)
