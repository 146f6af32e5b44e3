"""The asyncio gRPC transport; see ``_grpc_sync`` for why a stream of requests is called as one request."""

from __future__ import annotations

import asyncio
from typing import Any

from . import errors
from ._channel import ChannelConfig, translate
from ._proto import METHODS, Message, grpc, grpc_aio
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
        self.connected = False
        self._calls = {
            name: (self._channel.unary_stream if method.streaming else self._channel.unary_unary)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            for name, method in METHODS.items()
        }

    async def connect(self, timeout_s: float | None) -> None:
        if self.connected:
            return
        try:
            await asyncio.wait_for(self._settled(), timeout_s)
        except asyncio.TimeoutError:
            raise errors.ConnectTimeout(f"no connection within connect_s={timeout_s:g}") from None

    async def _settled(self) -> None:
        while True:
            state = self._channel.get_state(try_to_connect=True)
            self.connected = state is grpc.ChannelConnectivity.READY
            if self.connected or state in _FAILED:
                return
            await self._channel.wait_for_state_change(state)

    def call(self, method: str, message: Message, timeout_s: float | None, metadata: Metadata) -> AsyncRpc:
        call = self._calls[method](message, timeout=timeout_s, metadata=metadata)
        return _Stream(call) if METHODS[method].streaming else _Unary(call)

    def translate(self, error: Exception, sent: Message) -> errors.TritonStreamError | None:
        translated = translate(error, sent, connected=self.connected)
        if isinstance(translated, errors.TransportError):
            self.connected = False
        return translated

    async def close(self) -> None:
        await self._channel.close()


_FAILED = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)
