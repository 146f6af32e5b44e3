"""Several attempts at one answer: retries, endpoints, and the degrade chain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tritonstream import (
    ConnectionLost,
    Degrade,
    FirstTokenTimeout,
    InvalidRequest,
    ModelKind,
    ModelNotReady,
    Overloaded,
    Refused,
    Retry,
    TextDelta,
    Timeouts,
    TransportError,
    UsageError,
)
from tritonstream.testing import FakeModel, FakeTriton, Fault

QUICK = Retry(base_wait_s=0.01, max_wait_s=0.02)


def test_a_failure_before_the_first_token_is_tried_again(run: Any, serve: Any) -> None:
    fault = Fault("error", 0, code="RESOURCE_EXHAUSTED", times=2)
    server = serve(llm=FakeModel(faults=[fault]))

    async def body(client: Any) -> None:
        answer = await client.generate("llm", "x")
        assert answer.text == "Hello, world!"
        assert answer.origin.attempt == 2

    run(body, server.url, retry=QUICK)
    assert len({served.request_id for served in server.served}) == 3


def test_a_failure_after_the_first_token_is_not(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=["a", "b"], faults=[Fault("error", 1, code="RESOURCE_EXHAUSTED")]))

    async def body(client: Any) -> None:
        with pytest.raises(Overloaded) as caught:
            await client.generate("llm", "x")
        assert caught.value.partial is not None
        assert caught.value.partial.text == "a"

    run(body, server.url, retry=QUICK)
    assert len(server.served) == 1


def test_what_another_try_cannot_cure_is_not_tried(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(faults=[Fault("error", 0, code="INVALID_ARGUMENT")]))

    async def body(client: Any) -> None:
        with pytest.raises(InvalidRequest):
            await client.generate("llm", "x")

    run(body, server.url, retry=QUICK)
    assert len(server.served) == 1


def test_the_number_of_tries_is_bounded(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(faults=[Fault("error", 0, code="RESOURCE_EXHAUSTED")]))

    async def body(client: Any) -> None:
        with pytest.raises(Overloaded):
            await client.generate("llm", "x", retry=Retry(attempts=4, base_wait_s=0.01, max_wait_s=0.01))

    run(body, server.url)
    assert len(server.served) == 4


def test_a_struggling_server_is_not_buried_in_retries(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(faults=[Fault("error", 0, code="RESOURCE_EXHAUSTED")]))

    async def body(client: Any) -> None:
        for _ in range(20):
            with pytest.raises(Overloaded):
                await client.generate("llm", "x")

    run(
        body, server.url, retry=Retry(base_wait_s=0.001, max_wait_s=0.001, budget_reserve=3, budget_ratio=0.1)
    )
    # 20 requests, 3 retries in hand, 20 x 0.1 = 2 more earned (at most 3 are kept)
    assert 23 <= len(server.served) <= 25


def test_another_endpoint_takes_over_and_the_dead_one_is_left_out(run: Any, serve: Any) -> None:
    well, sick = serve(llm=FakeModel()), serve(llm=FakeModel())
    sick.kill()

    async def body(client: Any) -> None:
        for _ in range(6):
            assert (await client.generate("llm", "x")).origin.endpoint == well.url

    run(body, endpoints=[sick.url, well.url])
    assert len(well.served) == 6


def test_an_endpoint_that_is_back_is_found_by_a_probe(run: Any, serve: Any) -> None:
    first, second = serve(llm=FakeModel()), serve(llm=FakeModel())
    second.kill()

    async def body(client: Any) -> None:
        for _ in range(4):
            await client.generate("llm", "x")
        second.revive()
        assert await asyncio.to_thread(second.wait_for, lambda: second.calls.get("ServerReady"), 10)
        for _ in range(8):
            await client.generate("llm", "x")

    run(body, endpoints=[first.url, second.url])
    assert len(second.served) >= 3


def test_requests_go_where_the_fewest_are_outstanding(run: Any, serve: Any) -> None:
    busy = serve(llm=FakeModel(reply=["x"] * 50, between_tokens_s=0.1))
    idle = serve(llm=FakeModel(reply=["x"]))

    async def body(client: Any) -> None:
        running = []
        while len(busy.served) < 2:  # two long ones there
            stream = client.stream("llm", "x")
            assert await anext(stream) == TextDelta("x")
            running.append(stream)
        before = len(idle.served)
        for _ in range(5):
            assert (await client.generate("llm", "x")).origin.endpoint == idle.url
        assert len(idle.served) == before + 5
        for stream in running:
            stream.cancel()

    run(body, endpoints=[busy.url, idle.url])


@pytest.mark.parametrize(
    ("endpoints", "message"),
    [
        ([], "at least one"),
        (["http://a:8001"], "gRPC port"),
        (["a"], "host:port"),
        (["a:99999"], "host:port"),
        ("a:1", "list"),
    ],
)
def test_endpoints_that_are_none_are_refused(run: Any, endpoints: Any, message: str) -> None:
    async def body(client: Any) -> None:
        raise AssertionError("not reached")

    with pytest.raises(UsageError, match=message):
        run(body, endpoints=endpoints)


CHAIN = (
    Degrade(model="small", name="fast mode"),
    Degrade(max_tokens=2),
    Degrade(refuse=True),
)


def test_a_smaller_model_answers_and_the_answer_says_so(run: Any, serve: Any) -> None:
    server = serve(
        big=FakeModel(faults=[Fault("stall", 0)]),
        small=FakeModel(reply=["small", " talk"]),
    )

    async def body(client: Any) -> None:
        answer = await client.generate("big", "x", timeouts=Timeouts(first_token_s=0.2))
        assert answer.text == "small talk"
        assert answer.degraded
        assert (answer.origin.step, answer.origin.step_name, answer.origin.model) == (1, "fast mode", "small")

    run(body, server.url, degrade=CHAIN)
    assert server.wait_for(lambda: server.served[0].end == "cancelled")  # the big one does not go on


def test_steps_add_up_until_one_answers(run: Any, serve: Any) -> None:
    server = serve(
        big=FakeModel(ready=False),
        small=FakeModel(
            reply=["a", "b", "c"], faults=[Fault("error", 0, code="RESOURCE_EXHAUSTED", times=1)]
        ),
    )

    async def body(client: Any) -> None:
        answer = await client.generate("big", "x", max_tokens=100)
        assert (answer.text, answer.finish_reason) == ("ab", "length")
        assert (answer.origin.step, answer.origin.step_name) == (2, "max_tokens=2")

    run(body, server.url, degrade=CHAIN, retry=Retry(attempts=1))


def test_the_last_step_refuses_and_names_the_cause(run: Any, serve: Any) -> None:
    server = serve(big=FakeModel(ready=False), small=FakeModel(ready=False))

    async def body(client: Any) -> None:
        with pytest.raises(Refused, match="step 3") as caught:
            await client.generate("big", "x")
        assert isinstance(caught.value.__cause__, ModelNotReady)

    run(body, server.url, degrade=CHAIN, retry=Retry(attempts=1))


def test_an_answer_as_asked_is_not_marked(run: Any, serve: Any) -> None:
    server = serve(big=FakeModel())

    async def body(client: Any) -> None:
        answer = await client.generate("big", "x")
        assert not answer.degraded
        assert answer.origin.step == 0

    run(body, server.url, degrade=CHAIN)


def test_once_text_came_nothing_degrades(run: Any, serve: Any) -> None:
    server = serve(big=FakeModel(reply=["a", "b"], faults=[Fault("die", 1)]), small=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises((ConnectionLost, TransportError)):
            await client.generate("big", "x")

    run(body, server.url, degrade=CHAIN)


def test_without_a_refuse_step_the_last_failure_is_raised(run: Any, serve: Any) -> None:
    with FakeTriton({"big": FakeModel(faults=[Fault("stall", 0)])}) as server:

        async def body(client: Any) -> None:
            with pytest.raises(FirstTokenTimeout):
                await client.generate("big", "x")

        run(body, server.url, degrade=[Degrade(max_tokens=1)], timeouts=Timeouts(first_token_s=0.2))
    assert [served.inputs.get("max_tokens") for served in server.served] == [None, 1]


def test_a_front_is_told_the_class_and_the_step(run: Any, serve: Any) -> None:
    fault = Fault("error", 0, code="RESOURCE_EXHAUSTED", times=1)
    server = serve(big=FakeModel(ready=False), small=FakeModel(faults=[fault]))

    async def body(client: Any) -> None:
        await client.generate("big", "x", degrade=CHAIN)  # 1: small fails, 2: small answers
        user = [{"role": "user", "content": "x"}]
        await client.chat("small", user, traffic_class="night/batch-2")
        await client.generate("small", "x", traffic_class=None)

    run(body, server.url, traffic_class="interactive", retry=Retry(attempts=1))
    assert [served.parameters for served in server.served] == [
        {"traffic_class": "interactive", "degrade_step": 1},
        {"traffic_class": "interactive", "degrade_step": 2},
        {"traffic_class": "night/batch-2"},
        {"traffic_class": "interactive"},
    ]


def test_a_client_without_a_class_sends_none(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        await client.generate("llm", "x")
        await client.generate("llm", "x", traffic_class="interactive")

    run(body, server.url)
    assert [dict(served.parameters) for served in server.served] == [{}, {"traffic_class": "interactive"}]


@pytest.mark.parametrize("kind", [ModelKind.BLS, ModelKind.ENSEMBLE, ModelKind.LLMAPI, ModelKind.ENGINE])
def test_models_that_do_not_count_classes_are_not_told(run: Any, serve: Any, kind: ModelKind) -> None:
    engine = kind is ModelKind.ENGINE
    model = FakeModel(kind=kind, reply=[5, 6]) if engine else FakeModel(kind=kind)
    server = serve(big=FakeModel(kind=kind, ready=False), llm=model)
    prompt = [1, 2] if engine else "x"

    async def body(client: Any) -> None:
        for name in ("llm", "big"):
            await client.generate(
                name, prompt, max_tokens=2, traffic_class="x", degrade=[Degrade(model="llm")]
            )

    run(body, server.url, retry=Retry(attempts=1))
    assert [dict(served.parameters) for served in server.served] == [{}, {}]


@pytest.mark.parametrize("version", ["2.51.0", "2.68.0"])
@pytest.mark.parametrize("kind", [ModelKind.ENSEMBLE, ModelKind.LLMAPI])
def test_a_model_that_was_replaced_under_its_name_is_met_anew(
    run: Any, serve: Any, kind: ModelKind, version: str
) -> None:
    server = serve(llm=FakeModel(reply=["before"]))
    server.version = version  # before 26.04 (2.68) a stream's refusal has no code

    async def body(client: Any) -> None:
        assert (await client.generate("llm", "x", max_tokens=5)).text == "before"
        server.models["llm"] = FakeModel(kind=kind, reply=["after"])
        answer = await client.generate("llm", "x", max_tokens=5)
        assert answer.text == "after"
        assert (await client.generate("llm", "x", max_tokens=5)).origin.attempt == 0

    run(body, server.url, retry=Retry(attempts=1))


def test_what_the_model_could_not_do_before_it_was_replaced_is_no_verdict(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(kind=ModelKind.ENGINE))

    async def body(client: Any) -> None:
        with pytest.raises(UsageError, match="bare engine"):
            await client.generate("llm", "x", max_tokens=5)
        server.models["llm"] = FakeModel(reply=["text"])
        assert (await client.generate("llm", "x", max_tokens=5)).text == "text"

    run(body, server.url)


def test_a_refusal_by_the_model_as_it_is_known_is_not_sent_again(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(faults=[Fault("error", 0, code="INVALID_ARGUMENT")]))

    async def body(client: Any) -> None:
        for _ in range(2):
            with pytest.raises(InvalidRequest) as caught:
                await client.generate("llm", "x")
            assert caught.value.__cause__ is not None

    run(body, server.url)
    assert len(server.served) == 2
