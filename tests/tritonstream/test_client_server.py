"""Both clients against a real tritonserver, whose engines answer with the prompt's own tokens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.real_tokenizers import SAMPLES, tokenizer, tokenizer_spec

from tritonstream import (
    Client,
    ConnectError,
    ConnectionLost,
    InvalidRequest,
    ModelKind,
    ModelNotFound,
    Retry,
    TextDelta,
    TotalTimeout,
)
from trtbuild.measure.instant_repository import write_instant_repository
from trtbuild.serve.server import Server, start

pytestmark = pytest.mark.server


@dataclass
class Running:
    server: Server
    url: str
    tokenizer: Path


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Fronts ``fast`` and ``paced`` (20 ms a token), each over an engine of its own."""
    folder = tmp_path_factory.mktemp("client")
    texts = folder / "tokenizer"
    texts.mkdir()
    (texts / "tokenizer.json").write_text(json.dumps(tokenizer_spec("smollm2")))
    config = {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "bos_token": "<|im_start|>"}
    (texts / "tokenizer_config.json").write_text(json.dumps(config))
    (texts / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    (texts / "chat_template.jinja").write_text(template)
    repository = folder / "repository"
    write_instant_repository(repository, texts, name="fast")
    write_instant_repository(repository, texts, name="paced", step_ms=20)
    with start(repository) as server:
        yield Running(server, server.grpc_address, texts)


def count(text: str) -> int:
    return len(tokenizer("smollm2").encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("text", SAMPLES)
def test_text_comes_back_exactly_through_front_and_engine(run: Any, real: Running, text: str) -> None:
    async def body(client: Any) -> None:
        for model in ("fast", "fast_engine"):
            answer = await client.generate(model, text, max_tokens=count(text), token_ids=True)
            assert answer.text == text
            assert answer.finish_reason == "length"
            assert len(answer.token_ids) == answer.usage.completion_tokens == count(text)
        messages = [{"role": "user", "content": text}]
        assert (await client.chat("fast", messages, max_tokens=count(text))).text == text

    run(body, real.url, tokenizer=real.tokenizer)


def test_a_real_server_is_described(run: Any, real: Running) -> None:
    async def body(client: Any) -> None:
        front, engine = await client.describe("fast"), await client.describe("fast_engine")
        assert (front.kind, engine.kind) == (ModelKind.FRONT, ModelKind.ENGINE)
        assert {"chat", "deadline"} <= front.features
        assert await client.is_ready("fast")
        assert not await client.is_ready("nothing")
        with pytest.raises(ModelNotFound):
            await client.generate("nothing", "x")

    run(body, real.url)


def test_a_hundred_at_a_time_are_not_mixed_up(run: Any, real: Running) -> None:
    async def body(client: Any) -> None:
        prompts = [f"request number {number} of many" for number in range(100)]
        most = max(map(count, prompts))
        answers = [one async for one in client.many("fast", prompts, concurrency=100, max_tokens=most)]
        for prompt, answer in zip(prompts, answers, strict=True):
            assert (prompt * 2).startswith(answer.text[: len(prompt)])
            assert answer.text.startswith(prompt)

    run(body, real.url)


def test_stop_strings_deadlines_and_refusals(run: Any, real: Running) -> None:
    async def body(client: Any) -> None:
        for model in ("fast", "fast_engine"):
            answer = await client.generate(model, "one two three", max_tokens=50, stop=[" three"])
            assert (answer.text, answer.finish_reason) == ("one two", "stop")
        begun = time.monotonic()
        with pytest.raises(TotalTimeout):
            await client.generate("paced", "one two three", max_tokens=1000, deadline_s=0.5)
        assert time.monotonic() - begun < 5
        with pytest.raises(InvalidRequest, match="shorten"):
            await client.generate("fast", "word " * 100_000, max_tokens=5)

    run(body, real.url, tokenizer=real.tokenizer)


def test_leaving_frees_the_engine(run: Any, real: Running) -> None:
    """An engine of 20 ms a token would need 20 s for what is asked; all of them are done at once."""

    async def body(client: Any) -> None:
        begun = time.monotonic()
        for model in ("paced", "paced_engine"):
            for _ in range(20):
                async with client.stream(model, "one two three", max_tokens=1000) as stream:
                    assert isinstance(await anext(aiter(stream)), TextDelta)
        assert time.monotonic() - begun < 15

    run(body, real.url, tokenizer=real.tokenizer)


def test_a_server_that_is_killed(real: Running, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    write_instant_repository(repository, real.tokenizer, name="paced", step_ms=20)
    with start(repository) as server, Client(server.grpc_address, retry=Retry(attempts=1)) as client:
        stream = client.stream("paced", "one two three", max_tokens=1000)
        assert isinstance(next(stream), TextDelta)
        os.killpg(server.pid, signal.SIGKILL)
        with pytest.raises(ConnectionLost) as caught:
            stream.result()
        assert caught.value.partial is not None
        assert caught.value.partial.text.startswith("one")
        with pytest.raises(ConnectError):
            client.generate("paced", "x", max_tokens=5)


def test_an_async_client_reads_many_streams_at_once(real: Running) -> None:
    from tritonstream import AsyncClient

    async def main() -> None:
        async with AsyncClient(real.url) as client:

            async def one(number: int) -> None:
                text = f"number {number}"
                async with client.stream("paced", text, max_tokens=count(text)) as stream:
                    assert "".join([piece async for piece in stream.text_deltas()]) == text

            await asyncio.gather(*[one(number) for number in range(50)])

    asyncio.run(main())
