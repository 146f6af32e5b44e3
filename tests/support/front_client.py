"""A small raw gRPC client of text fronts, for tests: one RPC a request, responses as dictionaries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

USUAL = ("text_output", "finish_reason", "num_input_tokens", "num_output_tokens")
_TYPES = {bool: ("BOOL", np.bool_), int: ("INT32", np.int32), float: ("FP32", np.float32)}
_DTYPES = {"INT32": np.int32, "UINT32": np.uint32, "FP32": np.float32}
_UINT64 = ("seed", "lora_task_id")


def request(model: str, outputs: Iterable[str] = USUAL, **inputs: Any) -> service_pb2.ModelInferRequest:
    """A request with inputs of shape [1, n]: str, bytes or lists of them as BYTES, else by Python type."""
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, value in inputs.items():
        tensor = message.inputs.add(name=name)
        values = value if isinstance(value, list) else [value]
        if isinstance(values[0], (str, bytes)):
            items = [item.encode() if isinstance(item, str) else item for item in values]
            tensor.datatype = "BYTES"
            raw = b"".join(len(item).to_bytes(4, "little") + item for item in items)
        elif name in _UINT64:
            tensor.datatype, raw = "UINT64", np.array(values, dtype=np.uint64).tobytes()
        else:
            tensor.datatype, dtype = _TYPES[type(values[0])]
            raw = np.array(values, dtype=dtype).tobytes()
        tensor.shape.extend((1, len(values)))
        message.raw_input_contents.append(raw)
    for name in outputs:
        message.outputs.add().name = name
    return message


def read(message: service_pb2.ModelStreamInferResponse) -> dict[str, Any]:
    """Outputs by name (texts as str, one value without its list), ``final``, or ``error``."""
    if message.error_message:
        return {"error": message.error_message, "final": True}
    response = message.infer_response
    made: dict[str, Any] = {"final": response.parameters["triton_final_response"].bool_param}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        if output.datatype == "BYTES":
            values: list[Any] = []
            while raw:
                size = 4 + int.from_bytes(raw[:4], "little")
                values.append(raw[4:size].decode("utf-8"))
                raw = raw[size:]
        else:
            values = np.frombuffer(raw, _DTYPES[output.datatype]).tolist()
        made[output.name] = values[0] if len(values) == 1 and output.name != "token_ids" else values
    return made


class FrontClient:
    """Calls on one channel."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def __aenter__(self) -> FrontClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    def call(self, message: service_pb2.ModelInferRequest) -> Any:
        """The RPC itself, to iterate or cancel."""
        return self._stub.ModelStreamInfer(iter([message]))

    async def stream(self, model: str, **inputs: Any) -> AsyncIterator[dict[str, Any]]:
        async for message in self.call(request(model, **inputs)):
            yield read(message)


def ask(address: str, model: str, timeout_s: float = 30.0, **inputs: Any) -> list[dict[str, Any]]:
    """All responses to one request."""

    async def run() -> list[dict[str, Any]]:
        async with FrontClient(address) as client:
            return [response async for response in client.stream(model, **inputs)]

    return asyncio.run(asyncio.wait_for(run(), timeout_s))
