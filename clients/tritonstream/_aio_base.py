"""What the asynchronous client does behind its surface; the twin of ``_sync_base``."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from . import errors
from ._aio_stream import AsyncStream
from ._call import Call
from ._core import Core
from ._grpc_aio import AioGrpcTransport
from ._proto import METHODS, Message
from ._routing import Endpoint, Pool
from ._settings import Metadata
from ._shm import Regions
from ._status import parse_version
from ._stream_base import FACTS_S, STOP_S
from .models import ModelDescription, describing
from .transport import AsyncTransport


class AioBase:
    """Plumbing of ``AsyncClient``, for it and its streams."""

    def __init__(self, core: Core, make_transport: Callable[[str], AsyncTransport] | None) -> None:
        self._core = core
        self._make_transport = make_transport or (lambda address: AioGrpcTransport(address, core.channel))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transports: dict[str, AsyncTransport] = {}
        self._left_open = weakref.finalize(self, _let_go, os.getpid(), self._transports, core.regions)
        self._left_open.atexit = False  # gRPC sees to that itself
        self._reset()

    def _reset(self) -> None:
        self._transports.clear()
        self._describing: dict[str, asyncio.Lock] = {}
        self._streams: weakref.WeakSet[AsyncStream] = weakref.WeakSet()
        self._errands: set[asyncio.Task[None]] = set()
        self._prober: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """See ``Client.close``.

        Raises:
            ClosedError: another event loop uses the client; it must be closed there.
        """
        if self._core.closed or self._core.forked:
            return
        self._adopt()
        self._core.closed = True
        self._left_open.detach()
        streams = list(self._streams)
        for stream in streams:
            stream._end(errors.ClosedError("the client was closed while the request ran"))
        await _readers_gone(streams)
        if self._prober is not None:
            self._prober.cancel()
        if self._errands:
            await asyncio.wait(self._errands, timeout=STOP_S)
        transports = dict(self._transports)
        self._transports.clear()
        for address, calls in self._core.regions.close().items():
            for method, message in calls:
                if address in transports:
                    await self._call_quietly(transports[address], method, message)
        for transport in transports.values():
            await transport.close()

    def _adopt(self) -> None:
        """Makes the running loop the client's own if its last one is closed; what that had is left."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._core.check_usable()
            if self._loop is not None and not self._loop.is_closed():
                raise errors.ClosedError(
                    f"this client is in use by another event loop, {self._loop!r}; make one for each loop"
                )
            for stream in self._streams:
                stream._strand()
            self._loop = loop
            self._reset()

    def _transport(self, endpoint: Endpoint) -> AsyncTransport:
        self._adopt()
        transport = self._transports.get(endpoint.address)
        if transport is None:
            self._core.check_usable()
            transport = self._transports[endpoint.address] = self._make_transport(endpoint.address)
        return transport

    async def _describe(self, name: str, transport: AsyncTransport, call: Call) -> ModelDescription:
        found = self._core.models.get(name)
        if found is not None:
            return found
        async with self._describing.setdefault(name, asyncio.Lock()):
            found = self._core.models.get(name)
            if found is None:
                found = self._core.models[name] = await self._read_config(name, transport, call)
        return found

    async def _read_config(self, name: str, transport: AsyncTransport, call: Call) -> ModelDescription:
        dialogue = describing(name)
        wanted = next(dialogue)
        while True:
            request = METHODS["ModelConfig"].request(name=wanted)
            limit_s = call.config_s(time.monotonic())
            try:
                answer = await transport.call("ModelConfig", request, limit_s, call.metadata).__anext__()
                config = answer.config
            except Exception as exc:
                if wanted == name or transport.translate(exc, request, True) is None:
                    raise
                config = None
            try:
                wanted = dialogue.send(config)
            except StopIteration as done:
                metadata = await self._ask_quietly(call, "ServerMetadata", {})
                version = () if metadata is None else parse_version(metadata.version)
                described: ModelDescription = done.value
                return described.with_version(version)

    async def _ask_quietly(self, call: Call, method: str, fields: Mapping[str, str]) -> Message:
        """The answer to a question about the server, or None if there is none in time."""
        if call.endpoint is None:
            return None
        try:
            transport = self._transport(call.endpoint)
        except errors.ClosedError:
            return None
        return await self._call_quietly(transport, method, METHODS[method].request(**fields), call.metadata)

    async def _call_quietly(
        self, transport: AsyncTransport, method: str, message: Message, metadata: Metadata = ()
    ) -> Message:
        try:
            return await transport.call(method, message, FACTS_S, metadata).__anext__()
        except Exception as exc:
            _check_expected(transport, exc)
            return None

    def _errand(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something for which nobody waits."""
        errand = asyncio.ensure_future(work)
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    def _tell_engine(self, call: Call) -> None:
        """Sends the stop request of a call whose engine does not see that the RPC is cancelled."""
        engine, endpoint = call.stop_engine, call.endpoint
        if engine is not None and endpoint is not None:
            self._errand(self._stop(self._transport(endpoint), engine, call))

    async def _stop(self, transport: AsyncTransport, engine: str, call: Call) -> None:
        try:
            model = await self._describe(engine, transport, call)
            method = "ModelStreamInfer" if model.decoupled else "ModelInfer"
            async for _ in transport.call(method, call.stop_message(model), STOP_S, call.metadata):
                pass
        except Exception as exc:  # the request ends by itself later
            _check_expected(transport, exc)

    def _look_after_endpoints(self) -> None:
        """Sees to it that unhealthy endpoints are probed."""
        if self._core.pool.next_probe() is not None and (self._prober is None or self._prober.done()):
            self._prober = asyncio.ensure_future(_probing(weakref.ref(self), self._core.pool))

    async def _probe_one(self, endpoint: Endpoint) -> bool:
        try:
            transport = self._transport(endpoint)
            await transport.connect(FACTS_S)
        except errors.TritonStreamError:  # no connection yet, or the client was closed meanwhile
            return False
        answer = await self._call_quietly(transport, "ServerReady", METHODS["ServerReady"].request())
        return answer is not None and bool(answer.ready)


async def _probing(client: weakref.ref[AioBase], pool: Pool) -> None:
    """Looks after unhealthy endpoints, for as long as anybody else has the client."""
    while (due := pool.next_probe()) is not None:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        found = client()
        if found is None:
            return
        for endpoint in pool.to_probe(time.monotonic()):
            pool.probed(endpoint, time.monotonic(), await found._probe_one(endpoint))
        del found


def _let_go(pid: int, transports: dict[str, AsyncTransport], regions: Regions) -> None:
    """Tells of a client that was dropped open. Its channels close as gRPC frees them."""
    if pid == os.getpid() and transports:
        places = ", ".join(transports)
        transports.clear()
        regions.close()
        warnings.warn(
            f"an AsyncClient of {places} was dropped without close()", ResourceWarning, stacklevel=2
        )


async def _readers_gone(streams: list[AsyncStream]) -> None:
    """Lets the readers of ended streams see the end, before the channel takes its time to close."""
    patience = time.monotonic() + FACTS_S
    while any(stream._reading and not stream._finished for stream in streams) and time.monotonic() < patience:
        await asyncio.sleep(0.001)


def _check_expected(transport: AsyncTransport, exc: Exception) -> None:
    """Raises what is neither an error of the tree nor of the transport."""
    if not isinstance(exc, errors.TritonStreamError) and transport.translate(exc, None, True) is None:
        raise exc
