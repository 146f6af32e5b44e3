"""The synchronous client: threads and blocking calls. What happens is decided in ``_call``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from . import errors
from ._call import Call
from ._core import Core
from ._grpc_sync import GrpcTransport
from ._proto import METHODS
from ._request import Messages, Prompt
from ._routing import Endpoint
from ._sync_stream import Stream
from ._watchdog import Watchdog
from .events import Completion
from .models import ModelDescription, describing
from .options import Degrade, Keepalive, Retry, Timeouts, Tls
from .transport import Transport

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._params import GenerateParams

_STOP_S = 2.0  # how long a stop request may take


class Client:
    """A client of one or more Triton servers; safe for threads. Make one and keep it.

    Args:
        url: ``host:port`` of Triton's gRPC port; default ``127.0.0.1:8001``.
        endpoints: several servers with the same models, instead of ``url``: each request goes to the healthy
            one with the fewest outstanding requests.
        timeouts, retry, degrade: defaults of every request; a call's own arguments win.
        keepalive: pings while a stream is open; None for none.
        tls: True for the system's roots, or ``Tls`` with material of your own.
        headers: metadata of every request.
        tokenizer: folder with a tokenizer.json (or a mapping from model to folder), for bare engines and for
            rendering chat messages here.
        channel_options: raw gRPC channel arguments, which win over what this client sets.
        transport: makes the transport of an endpoint, instead of gRPC.
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
        transport: Callable[[str], Transport] | None = None,
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
        self._make_transport = transport or (lambda address: GrpcTransport(address, self._core.channel))
        self._transports: dict[str, Transport] = {}
        self._lock = threading.Lock()
        self._describing = threading.Lock()
        self._watchdog = Watchdog()
        self._errands: ThreadPoolExecutor | None = None

    # -- generating

    def stream(self, model: str, prompt: Prompt, **params: Unpack[GenerateParams]) -> Stream:
        """Returns the events of the answer as they come. Nothing is sent before the first pull.

        Args:
            model: name of a model of the server: trtbuild's front, NVIDIA's ensemble or BLS, an llmapi model or
                a bare engine; see ``describe``.
            prompt: text; for bare engines token ids as well.
            params: see ``GenerateParams``.

        Raises:
            UsageError: at once, for what cannot be sent. All else is raised while reading.
        """
        return Stream(self, self._core.call(model, prompt, None, params))

    def generate(self, model: str, prompt: Prompt, **params: Unpack[GenerateParams]) -> Completion:
        """Returns the whole answer. It travels as a stream where the model can, so that every limit holds."""
        with self.stream(model, prompt, **params) as stream:
            return stream.result()

    @overload
    def chat(
        self,
        model: str,
        messages: Messages,
        *,
        stream: Literal[False] = False,
        **params: Unpack[GenerateParams],
    ) -> Completion: ...

    @overload
    def chat(
        self, model: str, messages: Messages, *, stream: Literal[True], **params: Unpack[GenerateParams]
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
        call = self._core.call(model, None, messages, params, tools=tools, client_template=client_template)
        reader = Stream(self, call)
        if stream:
            return reader
        with reader:
            return reader.result()

    # -- asking

    def describe(self, model: str) -> ModelDescription:
        """Returns what the model is and can do, from its config; read once and kept."""
        call = self._core.call(model, "-", None, {})
        transport = self._transport(call.attempt())
        try:
            transport.connect(call.connect_s(time.monotonic()))
            return self._describe(model, transport, call)
        except Exception as exc:
            raise call.explained(exc, transport.translate(exc, None)) from exc
        finally:
            call.release()

    # -- closing

    def close(self) -> None:
        """Ends all that runs (its readers get ``ClosedError``) and closes the connections. Idempotent."""
        if self._core.closed or self._core.forked:
            return
        self._core.closed = True
        for item in self._watchdog.items():
            if isinstance(item, Stream):
                item.end(errors.ClosedError("the client was closed while the request ran"))
        if self._errands is not None:
            self._errands.shutdown(wait=True)
        self._watchdog.stop()
        with self._lock:
            transports, self._transports = list(self._transports.values()), {}
        for transport in transports:
            transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- for streams

    def _transport(self, endpoint: Endpoint) -> Transport:
        self._core.check_usable()
        address = endpoint.address
        transport = self._transports.get(address)
        if transport is None:
            with self._lock:
                transport = self._transports.get(address)
                if transport is None:
                    transport = self._transports[address] = self._make_transport(address)
        return transport

    def _describe(self, name: str, transport: Transport, call: Call) -> ModelDescription:
        found = self._core.models.get(name)
        if found is not None:
            return found
        with self._describing:
            found = self._core.models.get(name)
            if found is None:
                found = self._core.models[name] = self._ask(name, transport, call)
        return found

    def _ask(self, name: str, transport: Transport, call: Call) -> ModelDescription:
        dialogue = describing(name)
        wanted = next(dialogue)
        while True:
            request = METHODS["ModelConfig"].request(name=wanted)
            limit_s = call.config_s(time.monotonic())
            try:
                config = next(transport.call("ModelConfig", request, limit_s, call.metadata)).config
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
        if engine is None or endpoint is None:
            return
        with self._lock:
            if self._errands is None:
                self._errands = ThreadPoolExecutor(1, thread_name_prefix="tritonstream-errands")
            self._errands.submit(self._stop, self._transports[endpoint.address], engine, call)

    def _stop(self, transport: Transport, engine: str, call: Call) -> None:
        try:
            model = self._describe(engine, transport, call)
            method = "ModelStreamInfer" if model.decoupled else "ModelInfer"
            for _ in transport.call(method, call.stop_message(model), _STOP_S, call.metadata):
                pass
        except Exception as exc:  # nobody waits for it; the request ends by itself later
            if not isinstance(exc, errors.TritonStreamError) and transport.translate(exc, None) is None:
                raise
