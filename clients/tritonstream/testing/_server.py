"""The fake's gRPC server: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from .._proto import METHODS, grpc, grpc_aio, service_pb2
from ..models import ModelKind
from ._configs import config_of
from ._faults import Fault
from ._models import FakeModel, read_inputs


@dataclass
class Served:
    """What became of one request."""

    model: str
    request_id: str
    inputs: Mapping[str, Any]
    headers: Mapping[str, str]
    sent: int = 0  # responses
    end: str = ""  # done, cancelled, stopped, failed; empty while it runs
    stop: asyncio.Event = field(default_factory=asyncio.Event, repr=False)


class FakeTriton:
    """A Triton on a free port of the loopback interface.

    Args:
        models: by name.
        port: 0 takes a free one.
        credentials: of ``grpc.ssl_server_credentials``, for TLS.
        max_message_bytes: largest request that it takes.

    Use it as a context manager, or call ``start`` and ``stop``. ``served`` lists the requests in the order in
    which they came.
    """

    def __init__(
        self,
        models: Mapping[str, FakeModel],
        *,
        port: int = 0,
        credentials: Any = None,
        max_message_bytes: int = -1,
    ) -> None:
        self.models = dict(models)
        self.served: list[Served] = []
        self.calls: dict[str, int] = {}
        self.ready = True
        self.version = "2.51.0"
        self._port = port
        self._credentials = credentials
        self._max_message_bytes = max_message_bytes
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._server: Any = None

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> FakeTriton:
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-triton", daemon=True)
        self._thread.start()
        self._run(self._start())
        return self

    def stop(self, grace_s: float | None = None) -> None:
        """Stops at once (running requests break), or after ``grace_s``."""
        if self._thread is None:
            return
        self._run(self._server.stop(grace_s))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._thread = None
        self._loop.close()

    def kill(self) -> None:
        """The server dies: connections break, the port is closed. ``revive`` brings it back on the same port."""
        self._run(self._server.stop(None))

    def revive(self) -> None:
        self._run(self._start())

    def wait_for(self, condition: Any, timeout_s: float = 5.0) -> bool:
        """Waits until ``condition()``, evaluated in the server's thread after each of its steps, holds."""
        return bool(self._run(self._until(condition, timeout_s)))

    def active(self) -> int:
        """Requests that run."""
        return sum(not one.end for one in self.served)

    def __enter__(self) -> FakeTriton:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    async def _until(self, condition: Any, timeout_s: float) -> bool:
        end = self._loop.time() + timeout_s
        while not condition():
            if self._loop.time() > end:
                return False
            await asyncio.sleep(0.002)
        return True

    async def _start(self) -> None:
        self._server = grpc_aio.server(
            options=[
                ("grpc.max_receive_message_length", self._max_message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ]
        )
        self._server.add_generic_rpc_handlers((_Handler(self),))
        address = f"127.0.0.1:{self._port}"
        if self._credentials is None:
            self._port = self._server.add_insecure_port(address)
        else:
            self._port = self._server.add_secure_port(address, self._credentials)
        await self._server.start()

    # -- methods; each takes and returns messages

    async def handle(self, method: str, request: Any, context: Any) -> Any:
        self.calls[method] = self.calls.get(method, 0) + 1
        response = METHODS[method].response
        if method == "ServerReady":
            return response(ready=self.ready)
        if method == "ModelReady":
            model = self.models.get(request.name)
            return response(ready=model is not None and model.ready)
        if method == "ServerMetadata":
            return response(name="fake", version=self.version)
        if method == "ModelConfig":
            model = await self._find(request.name, context)
            return response(config=config_of(request.name, model))
        if method == "ModelInfer":
            return await self._infer(request, context)
        return response()

    async def stream(self, requests: AsyncIterator[Any], context: Any) -> None:
        self.calls["ModelStreamInfer"] = self.calls.get("ModelStreamInfer", 0) + 1
        running = [asyncio.ensure_future(self._serve(request, context)) async for request in requests]
        try:
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()

    async def _find(self, name: str, context: Any) -> FakeModel:
        model = self.models.get(name)
        if model is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found"
            )
        assert model is not None
        return model

    async def _infer(self, request: Any, context: Any) -> Any:
        model = await self._find(request.model_name, context)
        if model.decoupled:
            text = "ModelInfer RPC doesn't support models with decoupled transaction policy"
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, text)
        await self._check(model, request, context)
        served = self._record(request, context)
        fault = model.take_fault()
        try:
            await _pause(model.first_token_s, served)
            if fault is not None:
                await self._fail(fault, request, context, unary=True)
            response = next(iter(model.responses(request, served.inputs)))
            served.sent, served.end = 1, "done"
            return _spoiled(fault, 0, [response])[0]
        finally:
            served.end = served.end or "cancelled"

    async def _check(self, model: FakeModel, request: Any, context: Any) -> None:
        if not model.ready:
            text = f"Request for unknown model: '{request.model_name}' has no available versions"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        known = {tensor.name: tensor for tensor in config_of(request.model_name, model).input}
        for tensor in request.inputs:
            if tensor.name not in known:
                text = f"unexpected inference input '{tensor.name}' for model '{request.model_name}'"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)

    def _record(self, request: Any, context: Any) -> Served:
        headers = dict(context.invocation_metadata() or ())
        served = Served(request.model_name, request.id, read_inputs(request), headers)
        self.served.append(served)
        return served

    async def _serve(self, request: Any, context: Any) -> None:
        model = await self._find(request.model_name, context)
        await self._check(model, request, context)
        served = self._record(request, context)
        if served.inputs.get("stop") is True:
            self._stop_by_id(request.id, served)
            final = service_pb2.ModelInferResponse(model_name=request.model_name, id=request.id)
            final.parameters["triton_final_response"].bool_param = True
            await context.write(service_pb2.ModelStreamInferResponse(infer_response=final))
            served.end = "done"
            return
        work = asyncio.ensure_future(self._answer(model, request, served, context))
        if model.kind is not ModelKind.ENSEMBLE:
            await self._guarded(work, served)
            return
        # An ensemble's steps do not see that the client left: they run on.
        await asyncio.shield(self._guarded(work, served))

    async def _guarded(self, work: Any, served: Served) -> None:
        try:
            await work
        except asyncio.CancelledError:
            work.cancel()
            raise
        finally:
            served.end = served.end or "cancelled"

    def _stop_by_id(self, request_id: str, me: Served) -> None:
        for other in self.served:
            if other is not me and other.request_id == request_id and not other.end:
                other.stop.set()

    async def _answer(self, model: FakeModel, request: Any, served: Served, context: Any) -> None:
        fault = model.take_fault()
        responses = list(model.responses(request, served.inputs))
        await _pause(model.first_token_s, served)
        for number, response in enumerate(_order(fault, responses)):
            if number and model.between_tokens_s:
                await _pause(model.between_tokens_s, served)
            if fault is not None and fault.at == number:
                await self._fail(fault, request, context, unary=False)
            if served.stop.is_set():
                response.parameters["triton_final_response"].bool_param = True
            for spoiled in _spoiled(fault, number, [response]):
                await self._write(context, spoiled, served)
            if served.stop.is_set():
                served.end = "stopped"
                return
        if fault is not None and fault.kind == "late":
            await self._write(context, responses[0], served)
        if fault is not None and fault.kind == "linger":
            await asyncio.Event().wait()
        served.end = "done"

    async def _write(self, context: Any, response: Any, served: Served) -> None:
        served.sent += 1
        with contextlib.suppress(grpc_aio.InternalError):  # the client has left, and an ensemble runs on
            await context.write(service_pb2.ModelStreamInferResponse(infer_response=response))

    async def _fail(self, fault: Fault, request: Any, context: Any, *, unary: bool) -> None:
        if fault.kind == "drop":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        if fault.kind == "stall":
            await asyncio.Event().wait()
        if fault.kind == "error":
            asked = dict(context.invocation_metadata() or ()).get("triton_grpc_error") == "true"
            if unary or fault.code is not None or asked:
                await context.abort(grpc.StatusCode[fault.code or "INTERNAL"], fault.message)
            failed = service_pb2.ModelStreamInferResponse(error_message=fault.message)
            failed.infer_response.id = request.id
            await context.write(failed)
            await asyncio.Event().wait()  # Triton leaves the stream open after an error


async def _pause(seconds: float, served: Served) -> None:
    if seconds > 0:
        try:
            await asyncio.wait_for(served.stop.wait(), seconds)
        except asyncio.TimeoutError:
            return


def _order(fault: Fault | None, responses: list[Any]) -> Iterable[Any]:
    if fault is not None and fault.kind == "reorder" and fault.at + 1 < len(responses):
        at = fault.at
        responses[at], responses[at + 1] = responses[at + 1], responses[at]
    if fault is not None and fault.kind in ("no_final", "linger"):
        for response in responses:
            response.parameters.pop("triton_final_response", None)
    return responses


def _spoiled(fault: Fault | None, number: int, responses: list[Any]) -> list[Any]:
    if fault is None or fault.at != number:
        return responses
    response = responses[0]
    if fault.kind == "duplicate":
        return [response, response]
    if fault.kind == "foreign_id":
        response.id = "somebody-else"
    if fault.kind == "wrong_dtype" and response.outputs:
        response.outputs[0].datatype = "FP32"
    if fault.kind == "cut" and response.outputs:
        response.raw_output_contents[0] = response.raw_output_contents[0][:-1]
    return responses


class _Handler:
    """Dispatches by method name."""

    def __init__(self, fake: FakeTriton) -> None:
        self._fake = fake

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]
        method = METHODS.get(name)
        if method is None:
            return None
        if method.streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._fake.stream,
                request_deserializer=method.request.FromString,
                response_serializer=method.response.SerializeToString,
            )

        async def unary(request: Any, context: Any) -> Any:
            return await self._fake.handle(name, request, context)

        return grpc.unary_unary_rpc_method_handler(
            unary,
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )
