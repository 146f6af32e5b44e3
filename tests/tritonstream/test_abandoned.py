"""Streams and clients that nobody closes, two readers, forked processes and event loops that die."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from typing import Any

import pytest
from tests.support.counting import counted, settles

from tritonstream import (
    AsyncClient,
    Client,
    ClosedError,
    Retry,
    TextDelta,
    TritonStreamError,
    UsageError,
)
from tritonstream.testing import FakeModel, FakeTriton, Fault


def slow(**options: Any) -> FakeModel:
    return FakeModel(reply=["x"] * 200, between_tokens_s=0.01, **options)


def test_a_dropped_stream_is_cancelled(serve: Any) -> None:
    server = serve(llm=slow())
    with Client(server.url) as client:
        stream = client.stream("llm", "x")
        next(stream)
        del stream
        assert server.wait_for(lambda: server.served[0].end == "cancelled")


@pytest.mark.parametrize("way", ["stream", "text", "generator"])
def test_leaving_a_loop_over_an_async_stream_cancels_it(serve: Any, way: str) -> None:
    """Without a block around it: there is nobody left who could read on."""
    server = serve(llm=slow())

    async def first(client: AsyncClient) -> object:
        stream = client.stream("llm", "x")
        async for item in stream if way == "stream" else stream.text_deltas():
            if way != "generator":
                return item
            break
        return None

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            await first(client)
            gc.collect()
            assert await asyncio.to_thread(server.wait_for, lambda: server.served[0].end == "cancelled")

    asyncio.run(main())


def test_an_async_stream_that_another_thread_frees_is_cancelled(serve: Any) -> None:
    server = serve(llm=slow())

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            held = [client.stream("llm", "x")]
            await anext(held[0])
            await asyncio.to_thread(held.clear)
            assert await asyncio.to_thread(server.wait_for, lambda: server.served[0].end == "cancelled")

    asyncio.run(main())


@pytest.mark.parametrize("model", ["good", "sick"])
def test_a_client_that_is_dropped_leaves_nothing(serve: Any, model: str) -> None:
    server = serve(good=FakeModel(), sick=FakeModel(faults=[Fault("drop", 0)]))

    def use() -> None:
        client = Client(server.url, retry=Retry(attempts=1))
        with contextlib.suppress(TritonStreamError):
            client.generate(model, "x")

    use()
    before = counted()
    for _ in range(10):
        use()
    assert settles(before), (before, counted())


def test_a_client_of_a_dead_server_that_is_dropped_stops_trying() -> None:
    def use() -> None:
        client = Client("127.0.0.1:1")
        with pytest.raises(TritonStreamError):
            client.generate("llm", "x")

    before = counted()
    for _ in range(3):
        use()
    assert settles(before), (before, counted())


def test_an_async_client_that_is_dropped_is_told_of_and_stops_trying(serve: Any) -> None:
    server = serve(llm=FakeModel())

    async def use(url: str) -> None:
        with contextlib.suppress(TritonStreamError):
            await AsyncClient(url).generate("llm", "x")
        gc.collect()

    async def main() -> None:
        for url in (server.url, "127.0.0.1:1"):
            with pytest.warns(ResourceWarning, match="without close"):
                await use(url)
        end = time.monotonic() + 5
        while len(asyncio.all_tasks()) > 1 and time.monotonic() < end:
            await asyncio.sleep(0.02)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_stream_has_one_reader(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=["a", "b", "c"], first_token_s=0.3, between_tokens_s=0.1))

    async def body(client: Any) -> None:
        stream = client.stream("llm", "x")
        reading = asyncio.ensure_future(stream.result())
        assert await asyncio.to_thread(server.wait_for, lambda: server.served)
        for read in (stream.result, lambda: anext(stream)):
            with pytest.raises(UsageError, match="already being read"):
                await read()
        assert (await reading).text == "abc"  # it was not disturbed

    run(body, server.url)
    assert [served.end for served in server.served] == ["done"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("closed", [True, False])
def test_a_stream_of_another_event_loop_is_refused(serve: Any, closed: bool) -> None:
    server = serve(llm=slow())
    client = AsyncClient(server.url)
    stream = client.stream("llm", "x")

    async def begin() -> None:
        assert await anext(stream) == TextDelta("x")

    async def go_on() -> None:
        said = "is closed" if closed else "another than the running one"
        for read in (lambda: anext(stream), stream.result):
            with pytest.raises(ClosedError, match=said):
                await read()

    async def both() -> None:
        await begin()
        await asyncio.to_thread(asyncio.run, go_on())
        assert await anext(stream) == TextDelta("x")  # where it belongs it goes on
        await client.close()

    async def end() -> None:
        await stream.close()
        await client.close()

    if not closed:
        asyncio.run(both())
        return
    asyncio.run(begin())
    asyncio.run(go_on())
    asyncio.run(end())
    gc.collect()
    assert server.wait_for(lambda: server.active() == 0)


def test_a_loop_that_died_is_replaced_and_two_loops_are_refused(serve: Any) -> None:
    server = serve(llm=FakeModel())
    client = AsyncClient(server.url)

    async def ask() -> str:
        return str((await client.generate("llm", "x")).text)

    assert asyncio.run(ask()) == "Hello, world!"
    assert asyncio.run(ask()) == "Hello, world!"  # the first loop is dead by now

    async def both() -> None:
        await ask()

        def in_another_loop() -> None:
            with pytest.raises(ClosedError, match="another event loop"):
                asyncio.run(ask())

        await asyncio.to_thread(in_another_loop)
        await client.close()

    asyncio.run(both())


def test_a_forked_child_is_told_and_can_make_its_own_client() -> None:
    """In a fresh interpreter, whose main thread alone is there to be forked."""
    import subprocess
    import sys

    script = """
import gc, os, sys
from tritonstream import Client, ClosedError
from tritonstream.testing import FakeModel, FakeTriton
client = Client(sys.argv[1])
assert client.generate("llm", "x").text == "Hello, world!"
child = os.fork()
if child == 0:
    try:
        client.generate("llm", "x")
    except ClosedError as exc:
        client.close()
        os._exit(7 if "fork" in str(exc) else 1)
    os._exit(2)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 7, status
assert client.generate("llm", "x").text == "Hello, world!"

stream = client.stream("slow", "x")
next(stream)
child = os.fork()
if child == 0:
    try:
        with stream:
            next(stream)
    except ClosedError as exc:
        told = "fork" in str(exc)
        stream.close()
        del stream
        gc.collect()
        os._exit(7 if told else 1)
    os._exit(2)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 7, status
assert stream.result().text == "x" * 40
client.close()
print("done")
"""
    models = {"llm": FakeModel(), "slow": FakeModel(reply=["x"] * 40, between_tokens_s=0.02)}
    with FakeTriton(models) as server:
        result = subprocess.run(
            [sys.executable, "-c", script, server.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert result.stdout == "done\n", result.stderr


def test_a_forked_child_does_not_read_an_async_stream_of_its_parent(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count stands for the fork: CPython itself crashes in one beside gRPC's asyncio threads."""
    server = serve(llm=slow())

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            stream = client.stream("llm", "x")
            await anext(stream)
            with monkeypatch.context() as child:
                child.setattr("tritonstream._core._Forks.count", -1)
                with pytest.raises(ClosedError, match="fork"):
                    await anext(stream)
            assert (await stream.result()).text == "x" * 200

    asyncio.run(main())
