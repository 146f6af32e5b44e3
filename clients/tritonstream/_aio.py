"""The asynchronous client; the twin of ``_sync``."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from . import errors
from ._aio_stream import AsyncStream
from ._call import Call
from ._core import Core
from ._grpc_aio import AioGrpcTransport
from ._proto import METHODS, Message
from ._routing import Endpoint
from ._stream_base import FACTS_S, STOP_S
from ._wish import Messages, Prompt
from .events import Completion
from .models import ModelDescription, describing
from .transport import AsyncTransport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from ._core import ClientOptions
    from ._params import GenerateParams


class AsyncClient:
    """As ``Client``, for asyncio.

    Its connections belong to the event loop that first uses it; when that loop is dead, the next one gets new
    connections.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        transport: Callable[[str], AsyncTransport] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._core = Core(url, **options)
        self._make_transport = transport or (lambda address: AioGrpcTransport(address, self._core.channel))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reset()

    def _reset(self) -> None:
        self._transports: dict[str, AsyncTransport] = {}
        self._describing: dict[str, asyncio.Lock] = {}
        self._streams: weakref.WeakSet[AsyncStream] = weakref.WeakSet()
        self._errands: set[asyncio.Task[None]] = set()
        self._prober: asyncio.Task[None] | None = None

    # Generating

    def stream(self, model: str, prompt: Prompt, **params: Unpack[GenerateParams]) -> AsyncStream:
        """See ``Client.stream``."""
        return AsyncStream(self, self._core.generation(model, prompt, None, params))

    async def generate(self, model: str, prompt: Prompt, **params: Unpack[GenerateParams]) -> Completion:
        """See ``Client.generate``."""
        async with self.stream(model, prompt, **params) as stream:
            return await stream.result()

    @overload
    async def chat(
        self,
        model: str,
        messages: Messages,
        *,
        stream: Literal[False] = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        client_template: bool = False,
        **params: Unpack[GenerateParams],
    ) -> Completion: ...

    @overload
    async def chat(
        self,
        model: str,
        messages: Messages,
        *,
        stream: Literal[True],
        tools: Sequence[Mapping[str, Any]] | None = None,
        client_template: bool = False,
        **params: Unpack[GenerateParams],
    ) -> AsyncStream: ...

    async def chat(
        self,
        model: str,
        messages: Messages,
        *,
        stream: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        client_template: bool = False,
        **params: Unpack[GenerateParams],
    ) -> Completion | AsyncStream:
        """See ``Client.chat``."""
        reader = AsyncStream(
            self, self._core.generation(model, None, messages, params, tools, client_template)
        )
        if stream:
            return reader
        async with reader:
            return await reader.result()

    # Asking

    async def describe(self, model: str) -> ModelDescription:
        """See ``Client.describe``."""
        call = self._core.generation(model, "-", None, {})
        transport = self._transport(call.attempt())
        try:
            await transport.connect(call.connect_s(time.monotonic()))
            return await self._describe(model, transport, call)
        except Exception as exc:
            raise call.explained(exc, transport.translate(exc, None)) from exc
        finally:
            call.release()

    async def is_ready(self, model: str | None = None) -> bool:
        """See ``Client.is_ready``."""
        call = self._core.generation(model or "-", "-", None, {})
        method, fields = ("ModelReady", {"name": model}) if model else ("ServerReady", {})
        call.attempt()
        answer = await self._ask_quietly(call, method, fields)
        call.release()
        return answer is not None and bool(answer.ready)

    # Closing

    async def close(self) -> None:
        """See ``Client.close``."""
        if self._core.closed or self._core.forked:
            return
        self._core.closed = True
        for stream in list(self._streams):
            stream._end(errors.ClosedError("the client was closed while the request ran"))
        if self._prober is not None:
            self._prober.cancel()
        if self._errands:
            await asyncio.wait(self._errands, timeout=STOP_S)
        transports, self._transports = list(self._transports.values()), {}
        for transport in transports:
            await transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # For streams

    @property
    def _loop_alive(self) -> bool:
        return self._loop is not None and not self._loop.is_closed()

    def _transport(self, endpoint: Endpoint) -> AsyncTransport:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._core.check_usable()
            if self._loop_alive:
                raise errors.ClosedError(
                    "this client is in use by another event loop; make one for each loop"
                )
            self._loop = loop
            self._reset()
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
                if wanted == name or transport.translate(exc, request) is None:
                    raise
                config = None
            try:
                wanted = dialogue.send(config)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]

    async def _ask_quietly(self, call: Call, method: str, fields: Mapping[str, str]) -> Message:
        """The answer to a question about the server, or None if there is none in time."""
        try:
            assert call.endpoint is not None
            transport = self._transport(call.endpoint)
            rpc = transport.call(method, METHODS[method].request(**fields), FACTS_S, call.metadata)
            return await rpc.__anext__()
        except Exception:
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
            transport.translate(exc, None)

    def _look_after_endpoints(self) -> None:
        """Sees to it that unhealthy endpoints are probed."""
        if self._core.pool.next_probe() is not None and (self._prober is None or self._prober.done()):
            self._prober = asyncio.ensure_future(self._probe())

    async def _probe(self) -> None:
        pool = self._core.pool
        while (due := pool.next_probe()) is not None:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            for endpoint in pool.to_probe(time.monotonic()):
                pool.probed(endpoint, time.monotonic(), await self._probe_one(endpoint))

    async def _probe_one(self, endpoint: Endpoint) -> bool:
        try:
            transport = self._transport(endpoint)
            await transport.connect(FACTS_S)
            rpc = transport.call("ServerReady", METHODS["ServerReady"].request(), FACTS_S, ())
            return bool((await rpc.__anext__()).ready)
        except Exception:
            return False
