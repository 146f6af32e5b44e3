"""Leaving: cancelling at every moment, closing, and what must not be left behind."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

import pytest
from tests.support.counting import counted, settles
from tests.support.quick_triton import quick_triton

from tritonstream import (
    AsyncClient,
    Client,
    ClosedError,
    Finish,
    ModelKind,
    Retry,
    TextDelta,
    TokenIds,
    TritonStreamError,
    Usage,
)
from tritonstream.testing import FakeModel, Fault


def slow(**options: Any) -> FakeModel:
    return FakeModel(reply=["x"] * 200, between_tokens_s=0.01, **options)


def test_leaving_early_cancels_at_the_server(run: Any, serve: Any) -> None:
    server = serve(llm=slow())

    async def body(client: Any) -> None:
        async with client.stream("llm", "x") as stream:
            async for event in stream:
                assert event == TextDelta("x")
                break
        assert server.wait_for(lambda: server.served[0].end == "cancelled")
        assert server.served[0].sent < 100

    run(body, server.url)


def test_a_reader_of_a_cancelled_stream_sees_it_end(run: Any, serve: Any) -> None:
    server = serve(llm=slow())

    async def body(client: Any) -> None:
        stream = client.stream("llm", "x")
        events = []
        async for event in stream:
            events.append(event)
            if len(events) == 3:
                stream.cancel()
                stream.cancel()
        assert Finish("cancelled") in events
        assert stream.completion.finish_reason == "cancelled"
        assert stream.completion.text.startswith("xxx")
        stream.cancel()
        assert [event async for event in stream] == []

    run(body, server.url)


@pytest.mark.parametrize("way", ["block", "close", "unread", "task"])
def test_an_answer_that_was_left_is_settled_as_cancelled(run: Any, serve: Any, way: str) -> None:
    server = serve(engine=FakeModel(kind=ModelKind.ENGINE, reply=[[7, 8], 9] * 90, between_tokens_s=0.01))

    async def body(client: Any) -> None:
        stream = client.stream("engine", [1, 2, 3], max_tokens=500)
        seen = 0
        if way == "task":
            if not run.asynchronous:
                return
            reading = asyncio.ensure_future(stream.result())
            await asyncio.to_thread(server.wait_for, lambda: server.served and server.served[0].sent > 2)
            reading.cancel()
            await asyncio.wait([reading])
            seen = len(stream.completion.token_ids)
        elif way != "unread":
            async for event in stream:
                assert isinstance(event, TokenIds)
                seen += len(event.ids)
                if seen >= 5:
                    break
        await stream.close()
        await stream.close()
        answer = stream.completion
        assert answer.finish_reason == "cancelled"
        assert len(answer.token_ids) == seen
        assert answer.timings is not None
        if way != "unread":  # nothing was sent then, so nothing counted
            assert answer.usage == Usage(prompt_tokens=3, completion_tokens=seen)

    run(body, server.url)


def test_an_answer_that_failed_is_not_settled_by_leaving(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=["a", "b"], faults=[Fault("error", 1)]))

    async def body(client: Any) -> None:
        with pytest.raises(TritonStreamError):
            async with client.stream("llm", "x") as stream:
                await stream.result()
        assert stream.completion.text == "a"
        assert stream.completion.finish_reason is None
        async with client.stream("llm", "x") as whole:
            server.models["llm"].faults = []
            await whole.result()
        assert whole.completion.finish_reason == "stop"

    run(body, server.url)


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.05, 0.2, 0.5])
def test_cancelling_from_elsewhere_at_any_moment_ends_it_at_once(
    run: Any, serve: Any, delay_s: float
) -> None:
    server = serve(llm=FakeModel(reply=["x"] * 20, first_token_s=0.1, between_tokens_s=0.02))

    async def body(client: Any) -> None:
        stream = client.stream("llm", "x")
        asyncio.get_running_loop().call_later(delay_s, stream.cancel)
        begun = time.monotonic()
        events = [event async for event in stream]
        assert time.monotonic() - begun < delay_s + 0.5
        assert [event.reason for event in events if isinstance(event, Finish)] in (["cancelled"], ["stop"])

    run(body, server.url)
    assert server.wait_for(lambda: server.active() == 0)


def test_cancelled_before_it_began_nothing_is_sent(run: Any, serve: Any) -> None:
    server = serve(llm=slow())

    async def body(client: Any) -> None:
        stream = client.stream("llm", "x")
        stream.cancel()
        events = [event async for event in stream]
        assert events[0] == Finish("cancelled")

    run(body, server.url)
    assert server.served == []


def test_cancelling_while_it_waits_for_the_next_attempt(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(faults=[Fault("drop", 0)]))

    async def body(client: Any) -> None:
        stream = client.stream("llm", "x", retry=Retry(attempts=50, base_wait_s=5, max_wait_s=5))
        asyncio.get_running_loop().call_later(0.3, stream.cancel)
        begun = time.monotonic()
        assert await anext(stream) == Finish("cancelled")
        assert time.monotonic() - begun < 2

    run(body, server.url)


def test_through_an_ensemble_the_engine_is_told_by_a_unique_id(run: Any, serve: Any) -> None:
    server = serve(
        ens=slow(kind=ModelKind.ENSEMBLE, steps=("pre", "engine", "post"), final_apart=True),
        engine=FakeModel(kind=ModelKind.ENGINE),
    )

    async def body(client: Any) -> None:
        for _ in range(2):
            async with client.stream("ens", "x", max_tokens=200, request_id="mine") as stream:
                async for _ in stream:
                    break
        done = lambda: [s.end for s in server.served if s.model == "ens"] == ["stopped"] * 2  # noqa: E731
        assert await asyncio.to_thread(server.wait_for, done)

    run(body, server.url)
    ids = [served.request_id for served in server.served if served.model == "ens"]
    assert len(set(ids)) == 2
    assert all(id_.startswith("mine.") for id_ in ids)
    stops = [served.request_id for served in server.served if served.model == "engine"]
    assert sorted(stops) == sorted(ids)


def test_an_ensemble_over_two_engines_is_only_left(run: Any, serve: Any) -> None:
    server = serve(
        ens=FakeModel(kind=ModelKind.ENSEMBLE, reply=["x"] * 20, between_tokens_s=0.01, steps=("engine",)),
        engine=FakeModel(kind=ModelKind.ENGINE, instances=2),
    )

    async def body(client: Any) -> None:
        async with client.stream("ens", "x", max_tokens=200) as stream:
            async for _ in stream:
                break
            assert stream.model.cancel.how.value == "none"

    run(body, server.url)
    assert server.wait_for(lambda: server.served[0].sent >= 20)  # it ran to its end
    assert [served.model for served in server.served] == ["ens"]


def test_closing_the_client_ends_its_streams_with_the_reason(run: Any, serve: Any) -> None:
    server = serve(llm=slow())

    async def body(client: Any) -> None:
        async def read() -> None:
            async for _ in client.stream("llm", "x"):
                pass

        readers = [asyncio.ensure_future(read()) for _ in range(5)]
        await asyncio.to_thread(server.wait_for, lambda: len(server.served) == 5)
        await client.close()
        results = await asyncio.gather(*readers, return_exceptions=True)
        assert all(isinstance(result, ClosedError) for result in results)
        with pytest.raises(ClosedError, match="closed"):
            await client.generate("llm", "x")
        await client.close()

    run(body, server.url)
    assert server.wait_for(lambda: server.active() == 0)


@pytest.mark.slow
def test_a_thousand_streams_none_mixed_up_and_all_end_with_the_client() -> None:
    async def main(url: str) -> list[float]:
        client = AsyncClient(url)
        ended: list[float] = []
        begun = asyncio.Semaphore(0)

        async def read(number: int) -> None:
            stream = client.stream("llm", f"<{number}>")
            assert await anext(stream) == TextDelta(f"<{number}>")
            begun.release()
            with pytest.raises(ClosedError):
                assert await anext(stream) == TextDelta(f"<{number}>")
            ended.append(time.monotonic())

        readers = [asyncio.ensure_future(read(number)) for number in range(1000)]
        for _ in readers:
            await asyncio.wait_for(begun.acquire(), 120)
        await client.close()
        await asyncio.gather(*readers)
        return ended

    with quick_triton("--tokens", "50", "--between-ms", "60000", "--echo") as url:
        ended = asyncio.run(main(url))
    assert len(ended) == 1000
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # others may use the machine
    assert max(ended) - min(ended) < 0.2 * busy


@pytest.mark.slow
def test_threads_that_read_are_all_freed_together(serve: Any) -> None:
    server = serve(llm=FakeModel(reply=["x"] * 50, between_tokens_s=1.0))
    client = Client(server.url)
    ended: list[float] = []

    def read() -> None:
        try:
            client.generate("llm", "x")
        except ClosedError:
            ended.append(time.monotonic())

    threads = [threading.Thread(target=read) for _ in range(200)]
    for thread in threads:
        thread.start()
    assert server.wait_for(lambda: sum(served.sent > 0 for served in server.served) == 200, 30)
    client.close()
    for thread in threads:
        thread.join(10)
    assert len(ended) == 200
    assert max(ended) - min(ended) < 0.5


def test_nothing_is_left_behind(serve: Any) -> None:
    server = serve(
        llm=FakeModel(faults=[]),
        sick=FakeModel(faults=[Fault("error", 1)]),
        lost=FakeModel(faults=[Fault("drop", 1)]),
        slow=slow(),
    )

    def use(client: Client) -> None:
        client.generate("llm", "x")
        for name in ("sick", "lost"):
            with pytest.raises(TritonStreamError):
                client.generate(name, "x")
        with client.stream("slow", "x") as stream:
            next(stream)
        next(client.stream("slow", "x"))  # dropped without closing

    with Client(server.url) as client:
        use(client)
    before = counted()
    for _ in range(5):
        with Client(server.url) as client:
            use(client)
    assert settles(before), (before, counted())
    assert server.wait_for(lambda: server.active() == 0)


def test_nothing_is_left_behind_by_async_clients(serve: Any) -> None:
    server = serve(llm=FakeModel(), sick=FakeModel(faults=[Fault("error", 1)]), slow=slow())

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            await client.generate("llm", "x")
            with pytest.raises(Exception, match="failed as told"):
                await client.generate("sick", "x")
            async for _ in client.stream("slow", "x"):
                break

    asyncio.run(main())
    before = counted()
    for _ in range(5):
        asyncio.run(main())
    assert settles(before), (before, counted())
    assert server.wait_for(lambda: server.active() == 0)


def test_a_cancelled_task_cancels_its_request(serve: Any) -> None:
    server = serve(llm=slow())

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            task = asyncio.ensure_future(client.generate("llm", "x"))
            await asyncio.to_thread(server.wait_for, lambda: server.served and server.served[0].sent > 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.wait_for, lambda: server.served[0].end == "cancelled")

    asyncio.run(main())


@pytest.mark.parametrize("passes_id", [True, False])
def test_nvidias_bls_is_told_through_its_engine_where_it_passes_ids_on(
    run: Any, serve: Any, passes_id: bool
) -> None:
    parameters = {"tensorrt_llm_model_name": "engine"}
    if passes_id:
        parameters["multimodal_encoders_name"] = ""
    server = serve(
        bls=slow(kind=ModelKind.BLS, parameters=parameters, final_apart=True),
        engine=FakeModel(kind=ModelKind.ENGINE),
    )

    async def body(client: Any) -> None:
        described = await client.describe("bls")
        assert described.cancel.how.value == ("stop-request" if passes_id else "none")
        async with client.stream("bls", "x", max_tokens=200) as stream:
            await anext(aiter(stream))

    run(body, server.url)
    assert ("engine" in [served.model for served in server.served]) == passes_id
