"""The asyncio gRPC transport; see ``_grpc_sync`` for why a stream of requests is called as one request."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from . import errors
from ._channel import FAILED, OLD_NEWS_S, READY, ChannelConfig, translate
from ._proto import METHODS, Message, grpc_aio
from ._settings import Metadata
from .transport import AsyncRpc


class _Unary:
    """A unary call as an iterator of one message."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._done = False

    def __aiter__(self) -> _Unary:
        return self

    async def __anext__(self) -> Message:
        if self._done:
            raise StopAsyncIteration
        self._done = True
        return await self._call

    def cancel(self) -> object:
        return self._call.cancel()


class _Stream:
    """A streaming call as an iterator; ``cancel`` is gRPC's own."""

    __slots__ = ("_call", "_next", "cancel")

    def __init__(self, call: Any) -> None:
        self._call = call
        self._next = call.__aiter__().__anext__
        self.cancel = call.cancel

    def __aiter__(self) -> _Stream:
        return self

    def __anext__(self) -> Any:
        return self._next()


class AioGrpcTransport:
    """See ``transport.AsyncTransport``. Belongs to the event loop in which it is made."""

    def __init__(self, address: str, config: ChannelConfig) -> None:
        arguments = config.arguments()
        if config.tls is None:
            self._channel = grpc_aio.insecure_channel(address, options=arguments)
        else:
            self._channel = grpc_aio.secure_channel(address, config.credentials(), options=arguments)
        self._calls = {
            name: (self._channel.unary_stream if method.streaming else self._channel.unary_unary)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=None if method.streaming else method.response.FromString,
            )
            for name, method in METHODS.items()
        }

    async def connect(self, timeout_s: float | None) -> bool:
        if self._channel.get_state(try_to_connect=True) is READY:
            return True
        try:
            return await asyncio.wait_for(self._settled(), timeout_s)
        except asyncio.TimeoutError:
            raise errors.ConnectTimeout(f"no connection within connect_s={timeout_s:g}") from None

    async def _settled(self) -> bool:
        state = self._channel.get_state(try_to_connect=True)
        if state in FAILED:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._channel.wait_for_state_change(state), OLD_NEWS_S)
            state = self._channel.get_state(try_to_connect=True)
        while state is not READY and state not in FAILED:
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state(try_to_connect=True)
        return state is READY

    def call(self, method: str, message: Message, timeout_s: float | None, metadata: Metadata) -> AsyncRpc:
        call = self._calls[method](message, timeout=timeout_s, metadata=metadata)
        return _Stream(call) if METHODS[method].streaming else _Unary(call)

    def translate(self, error: Exception, sent: Message, connected: bool) -> errors.TritonStreamError | None:
        return translate(error, sent, connected)

    async def close(self) -> None:
        await self._channel.close()
