"""Many requests at once on a real server: batching in flight, cancellation, the KV pool, the gauges."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.engine_process import engine_process
from tests.support.grpc_engine import EngineClient, EngineError, request

from trtbuild.serve.server import Server

pytestmark = [pytest.mark.server, pytest.mark.alone]

Run = Callable[..., Any]
Gauge = Callable[[str, str], float]
PROMPT = [10, 20, 30, 40, 50]
SLOW_BLOCKS = 256  # of the fixture's model "slow", 32 tokens each


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> float:
    """Seconds until the condition holds; fails when it does not in time."""
    begun_s = time.monotonic()
    while not condition():
        assert time.monotonic() - begun_s < within_s, "it did not happen in time"
        await asyncio.sleep(0.01)
    return time.monotonic() - begun_s


def test_a_late_arrival_does_not_wait_for_those_that_run(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        order: list[str] = []
        begun = asyncio.Semaphore(0)

        async def long(name: str) -> None:
            async for response in client.stream(request("slow", PROMPT, 600, streaming=True)):
                if not order.count(name):
                    order.append(name)
                    begun.release()
                if response.final:
                    order.append(f"end of {name}")

        tasks = [asyncio.create_task(long(f"long {number}")) for number in range(7)]
        for _ in tasks:
            await begun.acquire()
        await client.answer(request("slow", [7, 8, 9], 1, streaming=True))
        order.append("late")
        await asyncio.gather(*tasks)
        assert order.index("late") == 7, order  # after the seven first tokens, before any end

    run(body)


def test_streams_that_end_together_all_end(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        for _ in range(4):
            answers = await asyncio.gather(
                *(client.answer(request("tiny", PROMPT, 16, streaming=True)) for _ in range(60))
            )
            assert {len(answer.ids) for answer in answers} == {16}

    run(body)


def test_a_cancelled_stream_makes_room_at_once(run: Run, gauge: Gauge) -> None:
    """90 % of the pool: 5 + 7350 tokens are 230 of 256 blocks, so two of them never fit together."""

    async def body(client: EngineClient) -> None:
        first = client.stream(request("slow", PROMPT, 7350, streaming=True))
        events = aiter(first)
        for _ in range(20):
            await anext(events)
        await until(lambda: gauge("slow", "used") > 0)
        second = client.stream(request("slow", PROMPT, 7350, streaming=True))
        later = asyncio.create_task(anext(aiter(second)))
        await until(lambda: gauge("slow", "waiting") == 1)
        first.cancel()
        assert (await asyncio.wait_for(later, 10.0)).ids
        second.cancel()
        waited_s = await until(lambda: gauge("slow", "used") == 0)
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # others may use the machine
        assert waited_s < 0.5 * busy
        assert gauge("slow", "free") == SLOW_BLOCKS
        assert gauge("slow", "active") == 0

    run(body)


def test_no_block_stays_behind_whenever_a_client_leaves(run: Run, gauge: Gauge) -> None:
    """Before it is sent on, before the first token, between any two, with the last one; and all at once."""
    tokens = 12

    async def leave(client: EngineClient, after: int | None, wait_s: float = 0.0) -> None:
        stream = client.stream(request("slow", PROMPT, tokens, streaming=True))
        events = aiter(stream)
        if after is None:
            reading = asyncio.ensure_future(anext(events))
            await asyncio.sleep(wait_s)  # the moment itself is what is varied
            stream.cancel()
            await asyncio.wait([reading])
            return
        for _ in range(after):
            await anext(events, None)  # fewer than tokens where several went in one response
        stream.cancel()
        stream.cancel()

    async def body(client: EngineClient) -> None:
        base = gauge("slow", "used")
        for after in range(tokens + 1):
            await leave(client, after)
            await until(lambda: gauge("slow", "used") == base)
        for number in range(20):
            await leave(client, None, number / 1000)
        await asyncio.gather(*(leave(client, number % (tokens + 1)) for number in range(60)))
        await until(lambda: gauge("slow", "active") == 0)
        await until(lambda: gauge("slow", "used") == base)
        assert gauge("slow", "free") == SLOW_BLOCKS - base
        assert len((await client.answer(request("slow", PROMPT, tokens, streaming=True))).ids) == tokens

    run(body)


def test_a_request_that_waits_can_be_cancelled(run: Run, gauge: Gauge) -> None:
    async def body(client: EngineClient) -> None:
        running = client.stream(request("narrow", PROMPT, 900, streaming=True))
        await anext(aiter(running))
        waiting = client.stream(request("narrow", PROMPT, 900, streaming=True))
        task = asyncio.create_task(anext(aiter(waiting)))
        await until(lambda: gauge("narrow", "waiting") == 1)
        waiting.cancel()
        await until(lambda: gauge("narrow", "waiting") == 0)
        running.cancel()
        with pytest.raises((StopAsyncIteration, asyncio.CancelledError)):
            await task
        await until(lambda: gauge("narrow", "active") == 0)

    run(body)


def test_the_gauges_are_right_while_busy_and_at_rest(run: Run, gauge: Gauge) -> None:
    async def body(client: EngineClient) -> None:
        streams = [client.stream(request("slow", PROMPT, 660, streaming=True)) for _ in range(3)]
        for stream in streams:
            await anext(aiter(stream))
        await until(lambda: gauge("slow", "generation_requests") == 3)
        assert gauge("slow", "active") == 3
        assert gauge("slow", "scheduled") == 3
        await until(lambda: gauge("slow", "used") >= 3)  # counted when a step began
        assert gauge("slow", "used") <= 3 * 21  # 665 tokens are 21 blocks
        before = gauge("slow", "iteration_counter")
        await until(lambda: gauge("slow", "iteration_counter") > before)
        for stream in streams:
            stream.cancel()
        await until(lambda: gauge("slow", "active") == 0)
        await until(lambda: gauge("slow", "used") == 0)
        assert gauge("slow", "fraction") == 0
        assert gauge("slow", "scheduled") == 0
        assert gauge("slow", "generation_requests") == 0
        assert gauge("slow", "tokens_per") == 32
        assert gauge("slow", "max") in (8, SLOW_BLOCKS)  # of requests, and of blocks

    run(body)


def test_more_sequences_than_fit_are_all_served_in_turn(run: Run) -> None:
    """40 requests of up to 13 blocks on 64 blocks: at most four at once; none may be dropped."""

    async def body(client: EngineClient) -> None:
        answers = await asyncio.gather(
            *(client.answer(request("tiny", [3 + number] * 5, 400)) for number in range(40))
        )
        assert [len(answer.ids) for answer in answers] == [400] * 40

    run(body)


def test_a_shared_prefix_neither_blocks_nor_changes_an_answer(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        prefix = [3 + number % 200 for number in range(640)]
        alone = [(await client.answer(request("tiny", [*prefix, tail], 30))).ids for tail in (5, 6, 7)]
        for _ in range(3):
            together = await asyncio.gather(
                *(client.answer(request("tiny", [*prefix, tail], 30)) for tail in (5, 6, 7) * 4)
            )
            assert [answer.ids for answer in together] == alone * 4

    run(body)


async def until_served(client: EngineClient, model: str, within_s: float = 30.0) -> None:
    """Returns when the model gives a token again."""
    deadline_s = time.monotonic() + within_s
    served = False
    while not served:
        with contextlib.suppress(EngineError):
            served = len((await client.answer(request(model, PROMPT, 1))).ids) == 1
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.05)


def test_an_engine_that_dies_is_told_and_comes_back(run: Run, tiny_server: Server, gauge: Gauge) -> None:
    async def body(client: EngineClient) -> None:
        running = client.stream(request("narrow", PROMPT, 900, streaming=True))
        events = aiter(running)
        await anext(events)
        os.kill(engine_process(tiny_server, "narrow").pid, signal.SIGKILL)
        with pytest.raises(EngineError, match=r"the engine failed: the server's log says why"):
            async for _ in events:
                pass
        assert len((await client.answer(request("tiny", PROMPT, 3))).ids) == 3  # another model is not touched
        with pytest.raises(EngineError, match=r"is being started again.* \[UNAVAILABLE\]"):
            await client.answer(request("narrow", PROMPT, 3))
        await until_served(client, "narrow")

    run(body)
