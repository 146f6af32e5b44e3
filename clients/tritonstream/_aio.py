"""The asynchronous client; the twin of ``_sync``."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from . import errors
from ._aio_stream import AsyncStream
from ._call import Call
from ._core import Core
from ._grpc_aio import AioGrpcTransport
from ._proto import METHODS
from ._request import Messages, Prompt
from ._routing import Endpoint
from .events import Completion
from .models import ModelDescription, describing
from .options import Degrade, Keepalive, Retry, Timeouts, Tls
from .transport import AsyncTransport

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._params import GenerateParams

_STOP_S = 2.0  # how long a stop request may take


class AsyncClient:
    """As ``Client``, for asyncio. Its connections belong to the event loop that first uses it; when that loop is
    dead, the next one gets new connections.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        endpoints: Sequence[str] | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008
        retry: Retry = Retry(),  # noqa: B008
        degrade: Sequence[Degrade] = (),
        keepalive: Keepalive | None = Keepalive(),  # noqa: B008
        tls: Tls | bool | None = None,
        headers: Mapping[str, str] | None = None,
        tokenizer: Any = None,
        channel_options: Sequence[tuple[str, Any]] = (),
        transport: Callable[[str], AsyncTransport] | None = None,
    ) -> None:
        self._core = Core(
            url,
            endpoints=endpoints,
            timeouts=timeouts,
            retry=retry,
            degrade=degrade,
            keepalive=keepalive,
            tls=tls,
            headers=headers,
            tokenizer=tokenizer,
            channel_options=channel_options,
        )
        self._make_transport = transport or (lambda address: AioGrpcTransport(address, self._core.channel))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reset()

    def _reset(self) -> None:
        self._transports: dict[str, AsyncTransport] = {}
        self._describing: dict[str, asyncio.Lock] = {}
        self._streams: weakref.WeakSet[AsyncStream] = weakref.WeakSet()
        self._errands: set[asyncio.Task[None]] = set()

    # -- generating

    def stream(self, model: str, prompt: Prompt, **params: Unpack[GenerateParams]) -> AsyncStream:
        """See ``Client.stream``."""
        return AsyncStream(self, self._core.call(model, prompt, None, params))

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
        **params: Unpack[GenerateParams],
    ) -> Completion: ...

    @overload
    async def chat(
        self, model: str, messages: Messages, *, stream: Literal[True], **params: Unpack[GenerateParams]
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
        call = self._core.call(model, None, messages, params, tools=tools, client_template=client_template)
        reader = AsyncStream(self, call)
        if stream:
            return reader
        async with reader:
            return await reader.result()

    # -- asking

    async def describe(self, model: str) -> ModelDescription:
        """See ``Client.describe``."""
        call = self._core.call(model, "-", None, {})
        transport = self._transport(call.attempt())
        try:
            await transport.connect(call.connect_s(time.monotonic()))
            return await self._describe(model, transport, call)
        except Exception as exc:
            raise call.explained(exc, transport.translate(exc, None)) from exc
        finally:
            call.release()

    # -- closing

    async def close(self) -> None:
        """See ``Client.close``."""
        if self._core.closed or self._core.forked:
            return
        self._core.closed = True
        for stream in list(self._streams):
            stream.end(errors.ClosedError("the client was closed while the request ran"))
        if self._errands:
            await asyncio.wait(self._errands, timeout=_STOP_S)
        transports, self._transports = list(self._transports.values()), {}
        for transport in transports:
            await transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- for streams

    @property
    def loop_alive(self) -> bool:
        return self._loop is not None and not self._loop.is_closed()

    def _transport(self, endpoint: Endpoint) -> AsyncTransport:
        self._core.check_usable()
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self.loop_alive:
                raise errors.ClosedError("this client is in use by another event loop; make one a loop")
            self._loop = loop
            self._reset()
        address = endpoint.address
        if address not in self._transports:
            self._transports[address] = self._make_transport(address)
        return self._transports[address]

    async def _describe(self, name: str, transport: AsyncTransport, call: Call) -> ModelDescription:
        found = self._core.models.get(name)
        if found is not None:
            return found
        async with self._describing.setdefault(name, asyncio.Lock()):
            found = self._core.models.get(name)
            if found is None:
                found = self._core.models[name] = await self._ask(name, transport, call)
        return found

    async def _ask(self, name: str, transport: AsyncTransport, call: Call) -> ModelDescription:
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

    def _tell_engine(self, call: Call) -> None:
        """Sends the stop request of a call whose engine does not see that the RPC is cancelled."""
        engine, endpoint = call.stop_engine, call.endpoint
        if engine is not None and endpoint is not None:
            errand = asyncio.ensure_future(self._stop(self._transports[endpoint.address], engine, call))
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)

    async def _stop(self, transport: AsyncTransport, engine: str, call: Call) -> None:
        try:
            model = await self._describe(engine, transport, call)
            method = "ModelStreamInfer" if model.decoupled else "ModelInfer"
            async for _ in transport.call(method, call.stop_message(model), _STOP_S, call.metadata):
                pass
        except Exception as exc:  # nobody waits for it; the request ends by itself later
            if not isinstance(exc, errors.TritonStreamError) and transport.translate(exc, None) is None:
                raise
