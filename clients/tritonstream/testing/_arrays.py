"""Responses of fake models made of arrays, pictures among them, and requests whose inputs lie in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _tensors
from .._proto import service_pb2

_DTYPES = {numpy: dtype for dtype, (_, _, numpy) in _tensors.FORMATS.items()}


@dataclass(frozen=True, slots=True)
class FakePage:
    """What a fake OCR model reads: lines of (text, score, four corners)."""

    lines: Sequence[tuple[str, float, Sequence[tuple[float, float]]]] = (
        ("hello", 0.9, ((0, 0), (50, 0), (50, 10), (0, 10))),
    )

    def arrays(self) -> dict[str, Any]:
        """text [n], score FP32 [n], box FP32 [n, 4, 2]."""
        import numpy as np

        return {
            "text": np.array([text.encode() for text, _, _ in self.lines], dtype=object),
            "score": np.array([score for _, score, _ in self.lines], dtype=np.float32),
            "box": np.array([box for _, _, box in self.lines], dtype=np.float32).reshape(-1, 4, 2),
        }


def new_response(request: Any) -> Any:
    """An empty response to a request."""
    return service_pb2.ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)


def put(response: Any, name: str, dtype: str, shape: Sequence[int], raw: bytes) -> None:
    """Adds an output tensor."""
    response.outputs.add(name=name, datatype=dtype, shape=shape)
    response.raw_output_contents.append(raw)


def tensor_response(request: Any, arrays: Mapping[str, Any], *, final: bool) -> Any:
    """A response with arrays: all, or those that the request names."""
    response = new_response(request)
    wanted = [output.name for output in request.outputs] or list(arrays)
    for name in wanted:
        array = arrays[name]
        dtype = _DTYPES.get(str(array.dtype), "BYTES")
        put(response, name, dtype, array.shape, _tensors.from_array(name, dtype, array))
    if final:
        response.parameters["triton_final_response"].bool_param = True
    return response


def raw_inputs(request: Any, regions: Mapping[str, str]) -> list[bytes]:
    """The bytes of a request's inputs, from the message or from shared memory (region name → key)."""
    inline = iter(request.raw_input_contents)
    found = []
    for tensor in request.inputs:
        if "shared_memory_region" in tensor.parameters:
            key = regions[tensor.parameters["shared_memory_region"].string_param]
            offset = tensor.parameters["shared_memory_offset"].int64_param
            size = tensor.parameters["shared_memory_byte_size"].int64_param
            data = Path("/dev/shm", key.lstrip("/")).read_bytes()
            found.append(data[offset : offset + size])
        else:
            found.append(next(inline))
    return found


def arrays_of(request: Any, raws: Sequence[bytes]) -> dict[str, Any]:
    """The request's inputs as arrays."""
    pairs = zip(request.inputs, raws, strict=True)
    return {tensor.name: _tensors.to_array(tensor.datatype, tensor.shape, raw) for tensor, raw in pairs}
