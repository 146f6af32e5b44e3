"""A small raw gRPC client of engine models, for tests and benchmarks: one RPC a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2, service_pb2_grpc

_DTYPES = {
    "bool": "BOOL", "uint8": "UINT8", "int32": "INT32", "int64": "INT64", "uint64": "UINT64",
    "float16": "FP16", "float32": "FP32",
}  # fmt: skip
_NUMPY = {name: dtype for dtype, name in _DTYPES.items()}


@dataclass
class Response:
    """One message of a stream: its tensors, and when it came (perf_counter seconds)."""

    tensors: dict[str, NDArray[Any]]
    final: bool
    at_s: float

    @property
    def ids(self) -> list[int]:
        """Ids of the first beam; none in a response without tensors."""
        ids = self.tensors.get("output_ids")
        return [] if ids is None or ids.size == 0 else ids.reshape(-1, ids.shape[-1])[0].tolist()


@dataclass
class Answer:
    responses: list[Response] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return [token for response in self.responses for token in response.ids]


class EngineError(Exception):
    """The server's own message about a request."""


def request(
    model: str,
    prompt: Iterable[int],
    max_tokens: int,
    *,
    outputs: Iterable[str] = ("output_ids", "sequence_length"),
    request_id: str = "",
    **inputs: Any,
) -> Any:
    """A ModelInferRequest with batch size 1. A scalar input becomes [1, 1]; an array gets a leading 1."""
    message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    ids = np.asarray(list(prompt), np.int32)
    tensors: Mapping[str, Any] = {
        "input_ids": ids,
        "input_lengths": np.int32(len(ids)),
        "request_output_len": np.int32(max_tokens),
        **inputs,
    }
    for name, value in tensors.items():
        array = np.asarray(value)
        array = array.reshape(1, 1) if array.ndim == 0 else array[None]
        add_input(message, name, array)
    for name in outputs:
        message.outputs.add(name=name)
    return message


def add_input(message: Any, name: str, array: NDArray[Any]) -> None:
    """Adds a tensor as it is, batch dimension included."""
    if array.dtype == object:
        datatype = "BYTES"
        raw = b"".join(len(item).to_bytes(4, "little") + item for item in array.reshape(-1))
    else:
        datatype, raw = _DTYPES[str(array.dtype)], np.ascontiguousarray(array).tobytes()
    message.inputs.add(name=name, datatype=datatype, shape=array.shape)
    message.raw_input_contents.append(raw)


def _read(message: Any) -> Response:
    answer = message.infer_response
    tensors = {
        output.name: np.frombuffer(raw, _NUMPY[output.datatype]).reshape(output.shape)
        for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)
    }
    return Response(tensors, answer.parameters["triton_final_response"].bool_param, time.perf_counter())


class Stream:
    """One running request. Iterate it, or cancel it."""

    def __init__(self, stub: Any, message: Any) -> None:
        async def once() -> AsyncIterator[Any]:
            yield message

        self._call = stub.ModelStreamInfer(once())

    async def __aiter__(self) -> AsyncIterator[Response]:
        async for message in self._call:
            if message.error_message:
                raise EngineError(message.error_message)
            response = _read(message)
            yield response
            if response.final:
                return

    def cancel(self) -> None:
        self._call.cancel()


class EngineClient:
    """A channel to a server; as an async context manager it is closed at the end."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def __aenter__(self) -> EngineClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    def stream(self, message: Any) -> Stream:
        return Stream(self._stub, message)

    async def answer(self, message: Any, timeout_s: float = 60.0) -> Answer:
        """All responses. Raises EngineError, or TimeoutError for one that hangs."""
        answer = Answer()

        async def collect() -> None:
            async for response in self.stream(message):
                answer.responses.append(response)

        await asyncio.wait_for(collect(), timeout_s)
        return answer
