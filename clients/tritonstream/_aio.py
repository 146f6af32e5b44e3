"""The asynchronous client's surface; the twin of ``_sync``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _checks
from ._aio_stream import AsyncStream
from ._aio_vision import AioVision
from ._core import Core
from ._infer import batches, joined, only
from ._many import Window, as_call, check_prompts
from ._params import check_options
from ._wish import Messages, Prompt
from .errors import UsageError
from .events import Completion
from .models import ModelDescription
from .transport import AsyncTransport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from ._infer import Array
    from ._params import GenerateParams, InferParams
    from .options import ClientOptions


class AsyncClient(AioVision):
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
        check_options(options, transport)
        super().__init__(Core(url, **options), transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Generating

    def stream(self, model: str, prompt: Prompt, **params: Unpack[GenerateParams]) -> AsyncStream:
        """See ``Client.stream``."""
        return AsyncStream(self, self._core.generation(model, prompt, None, params))

    async def generate(self, model: str, prompt: Prompt, **params: Unpack[GenerateParams]) -> Completion:
        """See ``Client.generate``."""
        async with AsyncStream(
            self, self._core.generation(model, prompt, None, params, at_once=True)
        ) as stream:
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
        _checks.flag("stream", stream)
        reader = AsyncStream(
            self, self._core.generation(model, None, messages, params, tools, client_template, not stream)
        )
        if stream:
            return reader
        async with reader:
            return await reader.result()

    async def many(
        self,
        model: str,
        prompts: Iterable[Prompt | Messages] | AsyncIterable[Prompt | Messages],
        *,
        concurrency: int = 16,
        return_errors: bool = False,
        **params: Unpack[GenerateParams],
    ) -> AsyncIterator[Completion | Exception]:
        """See ``Client.many``; prompts may come from an asynchronous iterable as well."""
        window: Window[AsyncStream] = Window(concurrency)
        check_prompts(prompts, params, (Iterable, AsyncIterable))
        try:
            async for prompt in _each(prompts):
                try:
                    stream = AsyncStream(self, as_call(self._core, model, prompt, params))
                except UsageError as error:
                    if not return_errors:
                        raise
                    window.add_refused(error)
                else:
                    window.add(stream, asyncio.ensure_future(_whole(stream)))
                if window.full:
                    yield await _next_result(window, return_errors)
            while window.running:
                yield await _next_result(window, return_errors)
        finally:
            running = window.futures()
            for stream in window.unread():
                stream.cancel()
            if running:
                await asyncio.wait(running)

    # Tensors; pictures are in ``_aio_vision``

    async def infer(
        self, model: str, inputs: Mapping[str, Any], **params: Unpack[InferParams]
    ) -> dict[str, Array]:
        """See ``Client.infer``."""
        description = self._core.models.get(model) or await self.describe(model)
        parts = [self._core.inference(model, part, params) for part in batches(description, inputs)]
        return joined(await asyncio.gather(*[_tensors(model, AsyncStream(self, part)) for part in parts]))

    def infer_stream(
        self, model: str, inputs: Mapping[str, Any], **params: Unpack[InferParams]
    ) -> AsyncStream:
        """See ``Client.infer_stream``."""
        return AsyncStream(self, self._core.inference(model, inputs, params))

    # Asking

    async def describe(self, model: str) -> ModelDescription:
        """See ``Client.describe``."""
        call = self._core.question(model)
        transport = self._transport(call.attempt())
        connected = False
        try:
            connected = await transport.connect(call.connect_s(time.monotonic()))
            return await self._describe(model, transport, call)
        except Exception as exc:
            raise call.explained(exc, transport.translate(exc, None, connected), time.monotonic()) from exc
        finally:
            call.release()

    async def is_ready(self, model: str | None = None) -> bool:
        """See ``Client.is_ready``."""
        call = self._core.question(model or "-")
        method, fields = ("ModelReady", {"name": model}) if model else ("ServerReady", {})
        call.attempt()
        answer = await self._ask_quietly(call, method, fields)
        call.release()
        return answer is not None and bool(answer.ready)


async def _each(
    prompts: Iterable[Prompt | Messages] | AsyncIterable[Prompt | Messages],
) -> AsyncIterator[Prompt | Messages]:
    if isinstance(prompts, AsyncIterable):
        async for prompt in prompts:
            yield prompt
    else:
        for prompt in prompts:
            yield prompt


async def _next_result(window: Window[AsyncStream], return_errors: bool) -> Completion | Exception:
    if window.oldest is not None:
        await asyncio.wait([window.oldest])
    return window.next_result(return_errors)


async def _whole(stream: AsyncStream) -> Completion:
    async with stream:
        return await stream.result()


async def _tensors(model: str, stream: AsyncStream) -> Mapping[str, Array]:
    async with stream:
        return only(model, [event async for event in stream])
