"""Both clients under one test body: bodies are coroutines, for which the sync client runs in threads."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tritonstream import AsyncClient, Client
from tritonstream.testing import FakeModel, FakeTriton


class Threaded:
    """A synchronous object with an asynchronous face; each call runs in a thread of its own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not callable(value) or name == "cancel":
            return value
        if name in ("stream", "text_deltas", "many"):  # these do not block; iterating them does
            return lambda *args, **kwargs: Threaded(value(*args, **kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = await asyncio.to_thread(value, *args, **kwargs)
            return Threaded(result) if hasattr(result, "__next__") else result

        return call

    def __aiter__(self) -> Threaded:
        return self

    async def __anext__(self) -> Any:
        end = object()
        item = await asyncio.to_thread(next, self.inner, end)
        if item is end:
            raise StopAsyncIteration
        return item

    async def __aenter__(self) -> Threaded:
        return self

    async def __aexit__(self, *details: Any) -> None:
        await asyncio.to_thread(self.inner.__exit__, *details)


Body = Callable[[Any], Awaitable[Any]]
Run = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a body with an open client: ``run(body, url, **options)``; returns what the body returns."""

    def runner(body: Body, url: str | None = None, **options: Any) -> Any:
        async def main() -> Any:
            if request.param == "async":
                async with AsyncClient(url, **options) as client:
                    return await body(client)
            client = Client(url, **options)
            try:
                return await body(Threaded(client))
            finally:
                await asyncio.to_thread(client.close)

        return asyncio.run(asyncio.wait_for(main(), 60))

    runner.asynchronous = request.param == "async"  # type: ignore[attr-defined]
    return runner


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeTriton]]:
    """Starts fake servers: ``serve(llm=FakeModel(...))``; stopped at the end."""
    started: list[FakeTriton] = []

    def start(**models: FakeModel) -> FakeTriton:
        started.append(FakeTriton(models).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A self-signed key and certificate for localhost, as PEM."""
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    extra = [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        str(key),
        "-out",
        str(chain),
    ]
    try:
        subprocess.run([*command.split(), *extra], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs openssl")
    return key.read_bytes(), chain.read_bytes()
