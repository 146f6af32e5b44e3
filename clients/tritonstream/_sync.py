"""The synchronous client's surface; plumbing is in ``_sync_base``, what happens is decided in ``_call``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _checks
from ._core import Core
from ._infer import batches, joined, only
from ._many import Window, as_call, carried, check_prompts
from ._params import check_options
from ._sync_stream import Stream
from ._sync_vision import SyncVision
from ._wish import Messages, Prompt
from .errors import UsageError
from .events import Completion
from .models import ModelDescription
from .transport import Transport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from ._infer import Array
    from ._params import GenerateParams, InferParams
    from .options import ClientOptions


class Client(SyncVision):
    """A client of one or more Triton servers; safe for threads. Make one and keep it.

    Args:
        url: ``host:port`` of Triton's gRPC port; default ``127.0.0.1:8001``.
        transport: makes the transport of an endpoint, instead of gRPC.
        options: see ``ClientOptions``.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        transport: Callable[[str], Transport] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_options(options, transport)
        super().__init__(Core(url, **options), transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Generating

    def stream(self, model: str, prompt: Prompt, **params: Unpack[GenerateParams]) -> Stream:
        """Returns the events of the answer as they come. Nothing is sent before the first pull.

        Args:
            model: name of a model of the server: trtbuild's front, NVIDIA's ensemble or BLS, an llmapi model
                or a bare engine; see ``describe``.
            prompt: text; for bare engines token ids as well.
            params: see ``GenerateParams``.

        Raises:
            UsageError: at once, for what cannot be sent. All else is raised while reading.
        """
        return Stream(self, self._core.generation(model, prompt, None, params))

    def generate(self, model: str, prompt: Prompt, **params: Unpack[GenerateParams]) -> Completion:
        """Returns the whole answer. It travels as a stream where the model can, so that every limit holds;
        not from a model that breaks characters then, see ``Characters``: there only ``total_s`` bounds it.
        """
        with Stream(self, self._core.generation(model, prompt, None, params, at_once=True)) as stream:
            return stream.result()

    @overload
    def chat(
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
    def chat(
        self,
        model: str,
        messages: Messages,
        *,
        stream: Literal[True],
        tools: Sequence[Mapping[str, Any]] | None = None,
        client_template: bool = False,
        **params: Unpack[GenerateParams],
    ) -> Stream: ...

    def chat(
        self,
        model: str,
        messages: Messages,
        *,
        stream: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        client_template: bool = False,
        **params: Unpack[GenerateParams],
    ) -> Completion | Stream:
        """Answers chat messages (``{"role": ..., "content": ...}``), whole or as a stream.

        The model's own template renders them: at the server where it takes messages, else here, for which
        the client needs ``tokenizer``. ``client_template`` renders here in any case.
        """
        _checks.flag("stream", stream)
        reader = Stream(
            self, self._core.generation(model, None, messages, params, tools, client_template, not stream)
        )
        if stream:
            return reader
        with reader:
            return reader.result()

    def many(
        self,
        model: str,
        prompts: Iterable[Prompt | Messages],
        *,
        concurrency: int = 16,
        return_errors: bool = False,
        **params: Unpack[GenerateParams],
    ) -> Iterator[Completion | Exception]:
        """Answers many prompts (or conversations), ``concurrency`` at a time, in order of the prompts.

        Prompts are taken as they are needed. Leaving the iterator early cancels what runs.

        Args:
            return_errors: give a failed prompt's error in its place, instead of raising it; also of one that
                cannot be sent, such as an empty one.
        """
        window: Window[Stream] = Window(concurrency)
        check_prompts(prompts, params, (Iterable,))
        whole = carried(_whole)
        with ThreadPoolExecutor(window.size, thread_name_prefix="tritonstream-many") as pool:
            try:
                for prompt in prompts:
                    try:
                        stream = Stream(self, as_call(self._core, model, prompt, params))
                    except UsageError as error:
                        if not return_errors:
                            raise
                        window.add_refused(error)
                    else:
                        window.add(stream, pool.submit(whole, stream))
                    if window.full:
                        yield window.next_result(return_errors)
                while window.running:
                    yield window.next_result(return_errors)
            finally:
                for stream in window.unread():
                    stream.cancel()

    # Tensors; pictures are in ``_sync_vision``

    def infer(self, model: str, inputs: Mapping[str, Any], **params: Unpack[InferParams]) -> dict[str, Array]:
        """Calls any model that answers once with plain tensors.

        Args:
            inputs: by name: arrays, lists, numbers or text. The batch dimension may be left out.
            params: see ``InferParams``.

        Returns:
            the outputs by name; BYTES as arrays of ``bytes``. A batch that is larger than the model takes is
            sent in parts and put together again.
        """
        description = self._core.models.get(model) or self.describe(model)
        streams = [
            Stream(self, self._core.inference(model, part, params)) for part in batches(description, inputs)
        ]
        if len(streams) == 1:
            return joined([_tensors(model, streams[0])])
        with ThreadPoolExecutor(4, thread_name_prefix="tritonstream-infer") as pool:
            return joined(list(pool.map(carried(lambda stream: _tensors(model, stream)), streams)))

    def infer_stream(self, model: str, inputs: Mapping[str, Any], **params: Unpack[InferParams]) -> Stream:
        """Returns the responses of a decoupled model of plain tensors as they come, as ``Tensors`` events."""
        return Stream(self, self._core.inference(model, inputs, params))

    # Asking

    def describe(self, model: str) -> ModelDescription:
        """Returns what the model is and can do, from its config; read once and kept."""
        call = self._core.question(model)
        transport = self._transport(call.attempt())
        connected = False
        try:
            connected = transport.connect(call.connect_s(time.monotonic()))
            return self._describe(model, transport, call)
        except Exception as exc:
            raise call.explained(exc, transport.translate(exc, None, connected), time.monotonic()) from exc
        finally:
            call.release()

    def is_ready(self, model: str | None = None) -> bool:
        """Whether a server (the one that the next request would go to), or a model of it, is ready now."""
        call = self._core.question(model or "-")
        method, fields = ("ModelReady", {"name": model}) if model else ("ServerReady", {})
        call.attempt()
        answer = self._ask_quietly(call, method, fields)
        call.release()
        return answer is not None and bool(answer.ready)


def _whole(stream: Stream) -> Completion:
    with stream:
        return stream.result()


def _tensors(model: str, stream: Stream) -> Mapping[str, Array]:
    with stream:
        return only(model, list(stream))
