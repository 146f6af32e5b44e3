"""Many requests at a time, and what a client tells about its requests."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import types
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tritonstream import (
    AsyncClient,
    Completion,
    Degrade,
    Hooks,
    ModelNotReady,
    Overloaded,
    RequestInfo,
    Retry,
    ServerError,
    UsageError,
)
from tritonstream.testing import FakeModel, Fault


def echo(**options: Any) -> FakeModel:
    return FakeModel(reply=lambda inputs: [inputs.get("text_input") or "chat"], **options)


def test_many_answers_come_in_order_a_bounded_number_at_a_time(run: Any, serve: Any) -> None:
    server = serve(llm=echo(first_token_s=0.02))
    most = 0

    def prompts() -> Any:
        nonlocal most
        for number in range(20):
            most = max(most, server.active())
            yield f"<{number}>"

    async def body(client: Any) -> None:
        texts = [answer.text async for answer in client.many("llm", prompts(), concurrency=4, max_tokens=5)]
        assert texts == [f"<{number}>" for number in range(20)]

    run(body, server.url)
    assert most <= 4


def test_many_takes_conversations_and_gives_errors_in_their_place(run: Any, serve: Any) -> None:
    model = echo()
    server = serve(llm=model)
    prompts: list[Any] = ["a", [{"role": "user", "content": "b"}], "c"]

    async def body(client: Any) -> None:
        assert [answer.text async for answer in client.many("llm", prompts)] == ["a", "chat", "c"]
        model.faults = [Fault("error", 0, times=1)]
        found = [one async for one in client.many("llm", prompts, concurrency=1, return_errors=True)]
        assert isinstance(found[0], ServerError)
        assert isinstance(found[2], Completion)
        model.faults = [Fault("error", 0, times=1)]
        with pytest.raises(ServerError):
            [one async for one in client.many("llm", prompts, concurrency=1)]
        with pytest.raises(UsageError, match="concurrency is 0"):
            [one async for one in client.many("llm", prompts, concurrency=0)]

    run(body, server.url)


def test_a_prompt_that_cannot_be_sent_is_an_error_in_its_place(run: Any, serve: Any) -> None:
    server = serve(llm=echo())
    prompts: list[Any] = ["a", "", 5, [{"role": "user", "content": "b"}], b"c", "d"]

    async def body(client: Any) -> None:
        for concurrency in (1, 2, 16):
            found = [
                one async for one in client.many("llm", prompts, concurrency=concurrency, return_errors=True)
            ]
            assert [getattr(one, "text", type(one)) for one in found] == [
                "a", UsageError, UsageError, "chat", UsageError, "d",
            ]  # fmt: skip
        with pytest.raises(UsageError, match="the prompt is empty"):
            [one async for one in client.many("llm", prompts)]
        with pytest.raises(UsageError, match="unknown parameter"):  # holds for all: not each prompt's error
            [one async for one in client.many("llm", prompts, return_errors=True, length=5)]

    run(body, server.url)


def test_an_asynchronous_client_takes_prompts_as_they_come(serve: Any) -> None:
    server = serve(llm=echo())

    async def prompts() -> AsyncIterator[str]:
        yield "a"
        await asyncio.sleep(0)
        yield "b"

    async def body() -> list[str]:
        async with AsyncClient(server.url) as client:
            found = [one async for one in client.many("llm", prompts())]
            return [one.text for one in found if isinstance(one, Completion)]

    assert asyncio.run(body()) == ["a", "b"]


def test_hooks_of_many_run_in_the_callers_context(run: Any, serve: Any) -> None:
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="lost")
    seen: list[str] = []

    class Looking(Hooks):
        def started(self, request: RequestInfo) -> None:
            seen.append(where.get())

    server = serve(llm=echo())

    async def body(client: Any) -> None:
        where.set("here")
        [one async for one in client.many("llm", ["a", "b", "c"], concurrency=2)]

    run(body, server.url, hooks=[Looking()])
    assert seen
    assert set(seen) == {"here"}


def test_leaving_many_cancels_what_runs(run: Any, serve: Any) -> None:
    def reply(inputs: Any) -> list[str]:
        return ["x"] * (1 if inputs["text_input"] == "first" else 100)

    server = serve(llm=FakeModel(reply=reply, between_tokens_s=0.05))

    async def body(client: Any) -> None:
        answers = client.many("llm", ["first", *["others"] * 10], concurrency=3)
        assert (await anext(aiter(answers))).text == "x"
        close = getattr(answers, "aclose", None) or answers.close
        await close()
        assert await asyncio.to_thread(server.wait_for, lambda: server.active() == 0)

    run(body, server.url)
    assert all(served.sent < 100 for served in server.served)


class Recorder(Hooks):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def started(self, request: RequestInfo) -> None:
        request.headers["x-trace"] = "abc"
        self.seen.append(("started", request.model, request.operation))

    def first_token(self, request: RequestInfo) -> None:
        self.seen.append(("first_token",))

    def retried(self, request: RequestInfo, error: Any, wait_s: float) -> None:
        self.seen.append(("retried", type(error)))

    def finished(self, request: RequestInfo, completion: Any, error: Any) -> None:
        self.seen.append(("finished", request.attempt, request.step, completion.text, type(error)))


def test_hooks_are_told_of_each_step_once(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(faults=[Fault("error", 0, code="RESOURCE_EXHAUSTED", times=1)]))
    recorder = Recorder()

    async def body(client: Any) -> None:
        await client.chat("llm", [{"role": "user", "content": "x"}])

    run(body, server.url, hooks=[recorder], headers={"X-User": "me"}, retry=Retry(base_wait_s=0.01))
    assert recorder.seen == [
        ("started", "llm", "chat"),
        ("retried", Overloaded),
        ("first_token",),
        ("finished", 1, 0, "Hello, world!", type(None)),
    ]
    headers = server.served[-1].headers
    assert (headers["x-trace"], headers["x-user"]) == ("abc", "me")


@pytest.mark.parametrize("way", ["failed", "cancelled", "degraded"])
def test_hooks_learn_how_it_ended(run: Any, serve: Any, way: str) -> None:
    faults = {"failed": [Fault("error", 1)]}.get(way, [])
    server = serve(llm=FakeModel(reply=["a"] * 20, between_tokens_s=0.01, faults=faults), small=FakeModel())
    recorder = Recorder()

    async def body(client: Any) -> None:
        if way == "failed":
            with pytest.raises(ServerError):
                await client.generate("llm", "x")
        elif way == "degraded":
            server.models["llm"].ready = False
            await client.generate("llm", "x", degrade=[Degrade(model="small")], retry=Retry(attempts=1))
        else:
            async with client.stream("llm", "x") as stream:
                async for _ in stream:
                    break

    run(body, server.url, hooks=[recorder])
    last = recorder.seen[-1]
    assert [entry[0] for entry in recorder.seen].count("finished") == 1
    if way == "failed":
        assert last == ("finished", 0, 0, "a", ServerError)
    elif way == "cancelled":
        assert last[:4] == ("finished", 0, 0, "a")
    else:
        assert recorder.seen[1] == ("retried", ModelNotReady)
        assert last == ("finished", 1, 1, "Hello, world!", type(None))


def test_a_hook_that_fails_does_not_touch_the_request(run: Any, serve: Any, caplog: Any) -> None:
    class Broken(Hooks):
        def first_token(self, request: RequestInfo) -> None:
            raise RuntimeError("hook broke")

    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        assert (await client.generate("llm", "x")).text == "Hello, world!"

    with caplog.at_level(logging.ERROR, "tritonstream"):
        run(body, server.url, hooks=[Broken()])
    assert "first_token of Broken" in caplog.text


class Span:
    """As much of OpenTelemetry's span as is used."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        self.name, self.attributes, self.events, self.status, self.ended = name, attributes, [], None, 0

    def add_event(self, name: str, attributes: Any = None) -> None:
        self.events.append(name)

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Any) -> None:
        self.status = status

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[Span]:
    """A stand-in for the opentelemetry package; the spans that it made."""
    made: list[Span] = []

    def start_span(name: str, *, kind: Any, attributes: dict[str, Any]) -> Span:
        made.append(Span(name, dict(attributes)))
        return made[-1]

    package: Any = types.ModuleType("opentelemetry")
    package.trace = types.SimpleNamespace(
        get_tracer=lambda name: types.SimpleNamespace(start_span=start_span),
        set_span_in_context=lambda span: span,
        SpanKind=types.SimpleNamespace(CLIENT="client"),
        Status=lambda code, text: (code, text),
        StatusCode=types.SimpleNamespace(ERROR="error"),
    )
    package.propagate = types.SimpleNamespace(
        inject=lambda carrier, context: carrier.update(traceparent=f"00-{id(context):032x}-{1:016x}-01")
    )
    monkeypatch.setitem(sys.modules, "opentelemetry", package)
    return made


def test_spans_are_made_where_opentelemetry_is_installed(run: Any, serve: Any, spans: list[Span]) -> None:
    server = serve(llm=FakeModel(), sick=FakeModel(faults=[Fault("error", 1)]))

    async def body(client: Any) -> None:
        await client.generate("llm", "two words", max_tokens=2)
        with pytest.raises(ServerError):
            await client.generate("sick", "x")

    run(body, server.url)
    good, bad = spans
    assert good.name == "generate llm"
    assert good.events == ["first_token"]
    assert good.attributes["gen_ai.usage.input_tokens"] == 2
    assert good.attributes["gen_ai.usage.output_tokens"] == 2
    assert good.attributes["gen_ai.response.finish_reasons"] == ["length"]
    assert good.attributes["server.address"] == server.url
    assert server.served[0].headers["traceparent"].startswith("00-")
    assert bad.attributes["error.type"] == "ServerError"
    assert "gen_ai.response.finish_reasons" not in bad.attributes
    assert bad.status[0] == "error"
    assert (good.ended, bad.ended) == (1, 1)


def test_tracing_can_be_switched_off_and_demanded(
    run: Any, serve: Any, spans: list[Span], monkeypatch: Any
) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        await client.generate("llm", "x")

    run(body, server.url, tracing=False)
    assert spans == []
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    run(body, server.url)
    with pytest.raises(ImportError, match="pip install opentelemetry-api"):
        run(body, server.url, tracing=True)
