"""The fake's gRPC server: a thread a request, so that it shares no event loop with whoever is tested."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from .. import _checks
from .._proto import METHODS, grpc, service_pb2
from ..models import ModelKind
from ._arrays import arrays_of, raw_inputs
from ._configs import config_of
from ._faults import Fault, in_order, spoiled
from ._front import Refusal
from ._models import FakeModel, read_inputs
from ._served import Served

_port = _checks.whole(0, 65535, "from 0 (any free one) to 65535")
_MOST_REQUESTS = 2048  # at once; a thread each, made when it is needed


class FakeTriton:
    """A Triton on a free port of the loopback interface.

    Args:
        models: by name.
        port: 0 takes a free one.
        credentials: of ``grpc.ssl_server_credentials``, for TLS.
        max_message_bytes: largest request that it takes; −1 for any.

    Use it as a context manager, or call ``start`` and ``stop``. ``models`` may be changed while it runs.

    Attributes:
        served: the requests in the order in which they came.
        calls: how often each method was called.
        ready: what ServerReady says.
        version: of Triton, that it claims to be.
        coded_errors: whether errors of a model come with a status code if asked for (Triton 24.09 and later).
        config_delay_s: how long it takes to give a config.
        regions: shared memory that clients registered: name → key.
    """

    def __init__(
        self,
        models: Mapping[str, FakeModel],
        *,
        port: int = 0,
        credentials: Any = None,
        max_message_bytes: int = -1,
    ) -> None:
        _checks.instance(Mapping, what="a mapping from names to FakeModel(...)")("models", models)
        _checks.tensors("models", models)
        _checks.sequence_of(FakeModel, "FakeModel(...)")("models", list(models.values()))
        _port("port", port)
        self.models = dict(models)
        self.served: list[Served] = []
        self.calls: dict[str, int] = {}
        self.ready = True
        self.version = "2.68.0"
        self.coded_errors = True
        self.config_delay_s = 0.0
        self.regions: dict[str, str] = {}
        self._port = port
        self._credentials = credentials
        self._max_message_bytes = max_message_bytes
        self._server: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> FakeTriton:
        self._stopping.clear()
        self._threads = ThreadPoolExecutor(_MOST_REQUESTS, thread_name_prefix="fake-triton")
        self._server = grpc.server(
            self._threads,
            options=[
                ("grpc.max_receive_message_length", self._max_message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
        )
        self._server.add_generic_rpc_handlers((_Handler(self),))
        address = f"127.0.0.1:{self._port}"
        if self._credentials is None:
            self._port = self._server.add_insecure_port(address)
        else:
            self._port = self._server.add_secure_port(address, self._credentials)
        self._server.start()
        return self

    def stop(self, grace_s: float | None = None) -> None:
        """Stops at once (running requests break), or after ``grace_s``."""
        if self._threads is None:
            return
        stopped = self._server.stop(grace_s)
        stopped.wait(grace_s or 0)
        self._stopping.set()
        stopped.wait()
        for served in self.served:
            served.left.set()
        self._threads.shutdown(wait=True)
        self._threads = None

    def kill(self) -> None:
        """The server dies: connections break, the port is closed. ``revive`` brings it back there."""
        self.stop()

    def revive(self) -> None:
        self.start()

    def active(self) -> int:
        """Requests that run."""
        return sum(not one.end for one in list(self.served))

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 5.0) -> bool:
        """Waits until ``condition()`` holds; says whether it came to."""
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def __enter__(self) -> FakeTriton:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Methods of the service; each takes and gives messages.

    def answer(self, method: str, request: Any, context: Any) -> Any:
        self._count(method)
        response = METHODS[method].response
        if method == "ServerReady":
            return response(ready=self.ready)
        if method == "ServerMetadata":
            return response(name="fake", version=self.version)
        if method == "ModelReady":
            model = self.models.get(request.name)
            return response(ready=model is not None and model.ready)
        if method == "ModelConfig":
            self._stopping.wait(self.config_delay_s)
            if request.name not in self.models:
                context.abort(
                    grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.name}' is not found"
                )
            return response(config=config_of(request.name, self.models[request.name]))
        if method == "ModelInfer":
            return self._infer(request, context)
        if method == "SystemSharedMemoryRegister":
            self.regions[request.name] = request.key
        if method == "SystemSharedMemoryUnregister":
            self.regions.pop(request.name, None)
        return response()

    def stream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        self._count("ModelStreamInfer")
        for request in requests:
            _, text = self._door(request, unary=False)
            if text:  # without a code, whatever the client asked for
                yield _text_error(text, request)
                continue
            served = self._record(request, context)
            try:
                if served.inputs.get("stop") is True:
                    yield self._stop_by_id(served)
                else:
                    yield from self._stream_one(self.models[request.model_name], request, served, context)
            except Refusal as refusal:
                yield self._failed(str(refusal), "INVALID_ARGUMENT", request, served, context)
                served.pause(None)
            except GeneratorExit:
                self._client_left(self.models[served.model], request, served)
                raise
            finally:
                served.end = served.end or ("cancelled" if served.left.is_set() else "failed")

    def _count(self, method: str) -> None:
        with self._lock:
            self.calls[method] = self.calls.get(method, 0) + 1

    def _door(self, request: Any, *, unary: bool) -> tuple[Any, str]:
        """Why a request is turned away: a status code and a text; no text if it is not."""
        name = request.model_name
        model = self.models.get(name)
        if model is None:
            return grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found"
        if not model.ready:
            return (
                grpc.StatusCode.UNAVAILABLE,
                f"Request for unknown model: '{name}' has no available versions",
            )
        if unary and model.decoupled:
            text = "ModelInfer RPC doesn't support models with decoupled transaction policy"
            return grpc.StatusCode.UNIMPLEMENTED, text
        known = {tensor.name for tensor in config_of(name, model).input}
        unknown = next((tensor.name for tensor in request.inputs if tensor.name not in known), None)
        if unknown is not None:
            return (
                grpc.StatusCode.INVALID_ARGUMENT,
                f"unexpected inference input '{unknown}' for model '{name}'",
            )
        return None, ""

    def _record(self, request: Any, context: Any) -> Served:
        headers = dict(context.invocation_metadata() or ())
        raws = raw_inputs(request, self.regions)
        inputs = read_inputs(request, raws)
        if self.models[request.model_name].compute is not None:
            inputs["arrays"] = arrays_of(request, raws)
        shapes = {tensor.name: list(tensor.shape) for tensor in request.inputs}
        parameters = {
            name: getattr(value, value.WhichOneof("parameter_choice") or "string_param")
            for name, value in request.parameters.items()
            if not name.startswith("triton_")
        }
        served = Served(request.model_name, request.id, inputs, headers, shapes, parameters)
        context.add_callback(served.left.set)
        with self._lock:
            self.served.append(served)
        return served

    def _infer(self, request: Any, context: Any) -> Any:
        code, text = self._door(request, unary=True)
        if text:
            context.abort(code, text)
        model = self.models[request.model_name]
        served = self._record(request, context)
        try:
            fault = model.take_fault()
            served.pause(model.first_token_s)
            if fault is not None:
                self._fail(fault, request, served, context, unary=True)
            response = spoiled(fault, 0, next(iter(model.responses(request, served.inputs))))[0]
            served.sent, served.end = 1, "cancelled" if served.left.is_set() else "done"
        except Refusal as refusal:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refusal))
        else:
            return response
        finally:
            served.end = served.end or ("cancelled" if served.left.is_set() else "failed")

    def _stream_one(self, model: FakeModel, request: Any, served: Served, context: Any) -> Iterator[Any]:
        fault = model.take_fault()
        response = None
        served.pause(model.first_token_s)
        for number, response in enumerate(in_order(fault, model.responses(request, served.inputs))):
            if number:
                served.pause(model.between_tokens_s)
            if fault is not None and fault.at == number:
                text = self._fail(fault, request, served, context, unary=False)
                if text is not None:
                    yield text
                    served.pause(None)  # Triton leaves the stream open after an error of a model
            if served.left.is_set() and not served.stopped:
                self._client_left(model, request, served)
                return
            if served.stopped:
                response.parameters["triton_final_response"].bool_param = True
            for one in spoiled(fault, number, response):
                served.sent += 1
                yield service_pb2.ModelStreamInferResponse(infer_response=one)
            if served.stopped:
                served.end = "stopped"
                return
        if fault is not None and fault.kind == "late":
            yield service_pb2.ModelStreamInferResponse(infer_response=response)
        if fault is not None and fault.kind in ("linger", "open_end"):
            served.pause(None)
        served.end = served.end or ("cancelled" if served.left.is_set() else "done")

    def _client_left(self, model: FakeModel, request: Any, served: Served) -> None:
        """An ensemble's steps do not see that the client left: they run on, unless they are told to stop."""
        served.left.set()
        if model.kind is not ModelKind.ENSEMBLE or served.end:
            return
        total = sum(1 for _ in model.responses(request, served.inputs))
        while served.sent < total and not served.stopped and self._threads is not None:
            time.sleep(max(model.between_tokens_s, 0.001))
            served.sent += 1
        served.end = "stopped" if served.stopped else "done"

    def _stop_by_id(self, me: Served) -> Any:
        for other in list(self.served):
            if other is not me and other.request_id == me.request_id and not other.end:
                other.stopped = True
                other.left.set()
        me.end = "done"
        final = service_pb2.ModelInferResponse(model_name=me.model, id=me.request_id)
        final.parameters["triton_final_response"].bool_param = True
        return service_pb2.ModelStreamInferResponse(infer_response=final)

    def _fail(self, fault: Fault, request: Any, served: Served, context: Any, *, unary: bool) -> Any:
        """Does what a fault says; returns the message of an error inside the stream."""
        if fault.kind == "drop":
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        if fault.kind == "die":
            self._server.stop(None)
        if fault.kind in ("stall", "die"):
            served.pause(None)
        if fault.kind == "error":
            if unary or fault.code is not None:
                context.abort(grpc.StatusCode[fault.code or "INTERNAL"], fault.message)
            return self._failed(fault.message, "INTERNAL", request, served, context)
        return None

    def _failed(self, message: str, code: str, request: Any, served: Served, context: Any) -> Any:
        """An error inside a stream: a status where the client asked for one, else the message to send."""
        if self.coded_errors and served.headers.get("triton_grpc_error") == "true":
            context.abort(grpc.StatusCode[code], message)
        return _text_error(message, request)


def _text_error(message: str, request: Any) -> Any:
    failed = service_pb2.ModelStreamInferResponse(error_message=message)
    failed.infer_response.id = request.id
    return failed


class _Handler:
    """Dispatches by method name."""

    def __init__(self, fake: FakeTriton) -> None:
        self._fake = fake

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]
        method = METHODS.get(name)
        if method is None:
            return None
        coding = {
            "request_deserializer": method.request.FromString,
            "response_serializer": method.response.SerializeToString,
        }
        if method.streaming:
            return grpc.stream_stream_rpc_method_handler(self._fake.stream, **coding)
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._fake.answer(name, request, context), **coding
        )
