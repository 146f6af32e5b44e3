"""The synchronous client: threads and blocking calls. What happens is decided in ``_call``."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from . import errors
from ._call import Call
from ._core import Core
from ._grpc_sync import GrpcTransport
from ._proto import METHODS, Message
from ._routing import Endpoint
from ._stream_base import FACTS_S, STOP_S
from ._sync_stream import Stream
from ._watchdog import Watchdog
from ._wish import Messages, Prompt
from .events import Completion
from .models import ModelDescription, describing
from .transport import Transport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from ._core import ClientOptions
    from ._params import GenerateParams


class Client:
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
        self._core = Core(url, **options)
        self._make_transport = transport or (lambda address: GrpcTransport(address, self._core.channel))
        self._transports: dict[str, Transport] = {}
        self._lock = threading.Lock()
        self._describing = threading.Lock()
        self._watchdog = Watchdog(self._probe)
        self._errands: ThreadPoolExecutor | None = None

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
        reader = Stream(self, self._core.generation(model, None, messages, params, tools, client_template))
        if stream:
            return reader
        with reader:
            return reader.result()

    # Asking

    def describe(self, model: str) -> ModelDescription:
        """Returns what the model is and can do, from its config; read once and kept."""
        call = self._core.generation(model, "-", None, {})
        transport = self._transport(call.attempt())
        try:
            transport.connect(call.connect_s(time.monotonic()))
            return self._describe(model, transport, call)
        except Exception as exc:
            raise call.explained(exc, transport.translate(exc, None)) from exc
        finally:
            call.release()

    def is_ready(self, model: str | None = None) -> bool:
        """Whether a server (the one that the next request would go to), or a model of it, is ready now."""
        call = self._core.generation(model or "-", "-", None, {})
        method, fields = ("ModelReady", {"name": model}) if model else ("ServerReady", {})
        call.attempt()
        answer = self._ask_quietly(call, method, fields)
        call.release()
        return answer is not None and bool(answer.ready)

    # Closing

    def close(self) -> None:
        """Ends all that runs (its readers get ``ClosedError``) and closes the connections. Idempotent."""
        if self._core.closed or self._core.forked:
            return
        self._core.closed = True
        for stream in self._watchdog.items():
            if isinstance(stream, Stream):
                stream._end(errors.ClosedError("the client was closed while the request ran"))
        self._watchdog.stop()
        if self._errands is not None:
            self._errands.shutdown(wait=True)
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

    # For streams

    def _transport(self, endpoint: Endpoint) -> Transport:
        transport = self._transports.get(endpoint.address)
        if transport is None:
            with self._lock:
                self._core.check_usable()
                transport = self._transports.get(endpoint.address)
                if transport is None:
                    transport = self._make_transport(endpoint.address)
                    self._transports[endpoint.address] = transport
        return transport

    def _describe(self, name: str, transport: Transport, call: Call) -> ModelDescription:
        found = self._core.models.get(name)
        if found is not None:
            return found
        with self._describing:
            found = self._core.models.get(name)
            if found is None:
                found = self._core.models[name] = self._read_config(name, transport, call)
        return found

    def _read_config(self, name: str, transport: Transport, call: Call) -> ModelDescription:
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

    def _ask_quietly(self, call: Call, method: str, fields: Mapping[str, str]) -> Message:
        """The answer to a question about the server, or None if there is none in time."""
        try:
            assert call.endpoint is not None
            transport = self._transport(call.endpoint)
            return next(transport.call(method, METHODS[method].request(**fields), FACTS_S, call.metadata))
        except Exception:
            return None

    def _errand(self, work: Callable[..., object], *args: object) -> None:
        """Runs something for which nobody waits."""
        with self._lock:
            if self._errands is None:
                self._errands = ThreadPoolExecutor(1, thread_name_prefix="tritonstream-errands")
            self._errands.submit(work, *args)

    def _tell_engine(self, call: Call) -> None:
        """Sends the stop request of a call whose engine does not see that the RPC is cancelled."""
        engine, endpoint = call.stop_engine, call.endpoint
        if engine is not None and endpoint is not None:
            self._errand(self._stop, self._transport(endpoint), engine, call)

    def _stop(self, transport: Transport, engine: str, call: Call) -> None:
        try:
            model = self._describe(engine, transport, call)
            method = "ModelStreamInfer" if model.decoupled else "ModelInfer"
            for _ in transport.call(method, call.stop_message(model), STOP_S, call.metadata):
                pass
        except Exception as exc:  # the request ends by itself later
            transport.translate(exc, None)

    def _look_after_endpoints(self) -> None:
        """Sees to it that unhealthy endpoints are probed."""
        due = self._core.pool.next_probe()
        if due is not None:
            self._watchdog.notice(due)

    def _probe(self, now: float) -> float:
        """Looks after unhealthy endpoints, on the watchdog's thread; returns when to look again."""
        pool = self._core.pool
        for endpoint in pool.to_probe(now):
            self._errand(self._probe_one, endpoint)
        return pool.next_probe() or math.inf

    def _probe_one(self, endpoint: Endpoint) -> None:
        try:
            transport = self._transport(endpoint)
            transport.connect(FACTS_S)
            ready = next(transport.call("ServerReady", METHODS["ServerReady"].request(), FACTS_S, ())).ready
        except Exception:
            ready = False
        self._core.pool.probed(endpoint, time.monotonic(), ready)
