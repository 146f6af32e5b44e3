"""A transport of one's own, without any network: for recorders, other carriers, tests that count calls."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from tritonstream import ConnectError, ConnectTimeout, Retry, TritonStreamError
from tritonstream._proto import service_pb2
from tritonstream.testing import FakeModel
from tritonstream.testing._configs import config_of
from tritonstream.testing._models import read_inputs


class Broken(Exception):
    """An error of this carrier."""


class Rpc:
    """The messages of a call, for both kinds of client."""

    def __init__(self, messages: list[Any]) -> None:
        self._messages = messages

    def __iter__(self) -> Rpc:
        return self

    def __next__(self) -> Any:
        if not self._messages:
            raise StopIteration
        message = self._messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    def __aiter__(self) -> Rpc:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    def cancel(self) -> None:
        self._messages.clear()


class Carrier:
    """Answers from memory; keeps what was sent."""

    model = FakeModel()

    def __init__(self, address: str) -> None:
        self.address = address
        self.sent: list[str] = []
        self.closed = False
        self.broken = 0

    def call(self, method: str, message: Any, timeout_s: float | None, metadata: Any) -> Rpc:
        self.sent.append(method)
        if self.broken:
            self.broken -= 1
            return Rpc([Broken("cut")])
        if method == "ModelConfig":
            return Rpc([service_pb2.ModelConfigResponse(config=config_of(message.name, self.model))])
        if method == "ServerMetadata":
            return Rpc([service_pb2.ServerMetadataResponse(name="carried", version="2.68.0")])
        inputs = read_inputs(message, message.raw_input_contents)
        answers = self.model.responses(message, inputs)
        return Rpc(
            [service_pb2.ModelStreamInferResponse(infer_response=one).SerializeToString() for one in answers]
        )

    def drop(self, rpc: Rpc) -> None:
        rpc.cancel()

    def translate(self, error: Exception, sent: Any, connected: bool) -> TritonStreamError | None:
        return ConnectError(f"the carrier broke: {error}") if isinstance(error, Broken) else None


class SyncCarrier(Carrier):
    def connect(self, timeout_s: float | None) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class AsyncCarrier(Carrier):
    async def _done(self, value: Any) -> Any:
        return value

    def connect(self, timeout_s: float | None) -> Awaitable[bool]:
        return self._done(True)

    def close(self) -> Awaitable[None]:
        self.closed = True
        return self._done(None)


def test_a_carrier_of_ones_own_is_called_and_closed(run: Any) -> None:
    kind = AsyncCarrier if run.asynchronous else SyncCarrier

    carriers: list[Carrier] = []

    def make(address: str) -> Carrier:
        carriers.append(kind(address))
        return carriers[-1]

    async def body(client: Any) -> None:
        assert (await client.generate("llm", "x")).text == "Hello, world!"
        carriers[0].broken = 1
        assert (await client.generate("llm", "x")).text == "Hello, world!"  # tried again
        carriers[0].broken = 9
        with pytest.raises(ConnectError, match="the carrier broke"):
            await client.generate("llm", "x")

    run(body, "somewhere:1", transport=make, retry=Retry(attempts=2, base_wait_s=0.01))
    assert carriers[0].address == "somewhere:1"
    assert carriers[0].sent[:3] == ["ModelConfig", "ServerMetadata", "ModelStreamInfer"]
    assert carriers[0].closed


def test_what_is_no_error_of_the_carrier_comes_through(run: Any) -> None:
    kind = AsyncCarrier if run.asynchronous else SyncCarrier

    class Odd(kind):  # type: ignore[misc,valid-type]
        def call(self, method: str, message: Any, timeout_s: float | None, metadata: Any) -> Rpc:
            return Rpc([ZeroDivisionError("a bug")])

    async def body(client: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            await client.generate("llm", "x")
        with pytest.raises(ZeroDivisionError):
            await client.describe("llm")

    run(body, transport=Odd)


def test_limits_of_a_carrier_are_typed_too(run: Any) -> None:
    kind = AsyncCarrier if run.asynchronous else SyncCarrier

    class Slow(kind):  # type: ignore[misc,valid-type]
        def connect(self, timeout_s: float | None) -> Any:
            raise ConnectTimeout(f"nobody within {timeout_s}")

    async def body(client: Any) -> None:
        with pytest.raises(ConnectTimeout, match=r"within 5.*somewhere:1"):
            await client.generate("llm", "x", retry=Retry(attempts=1))

    run(body, "somewhere:1", transport=Slow)
