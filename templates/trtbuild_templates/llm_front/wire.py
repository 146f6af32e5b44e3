"""Messages of the KServe v2 gRPC protocol, as far as the front speaks it with its engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.grpc import service_pb2

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"

Array = npt.NDArray[Any]

_DTYPES = {
    "BOOL": np.bool_, "INT32": np.int32, "INT64": np.int64, "UINT64": np.uint64, "UINT8": np.uint8,
    "FP16": np.float16, "FP32": np.float32,
}  # fmt: skip
_NAMES = {np.dtype(kind): name for name, kind in _DTYPES.items()}


def request_bytes(model: str, tensors: dict[str, Array], outputs: Iterable[str]) -> bytes:
    """Serialises one inference request.

    Args:
        model: the engine's name.
        tensors: by input name, each with the batch dimension 1 in front; bytes objects make a BYTES tensor.
        outputs: names of the outputs that the engine shall send.
    """
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, array in tensors.items():
        tensor = message.inputs.add()
        tensor.name = name
        tensor.shape.extend(array.shape)
        if array.dtype == object:
            tensor.datatype = "BYTES"
            items = [bytes(item) for item in array.ravel()]
            raw = b"".join(len(item).to_bytes(4, "little") + item for item in items)
        else:
            tensor.datatype = _NAMES[array.dtype]
            raw = np.ascontiguousarray(array).tobytes()
        message.raw_input_contents.append(raw)
    for name in outputs:
        message.outputs.add().name = name
    # the final flag comes with the last tokens or in a message of its own; either way at once
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    return bytes(message.SerializeToString())


@dataclass
class Reply:
    """One message of the engine."""

    error: str = ""
    final: bool = False
    ids: list[list[int]] = field(default_factory=list)  # of each beam
    sequence: int = 0  # which of several returned sequences
    extras: dict[str, Array] = field(default_factory=dict)  # other outputs, with their batch dimension


def parse_reply(data: bytes) -> Reply:
    """Reads a ModelStreamInferResponse of a ``tensorrt_llm`` model.

    ``ids`` are cut at ``sequence_length`` (engines pad ``output_ids``), one list a beam.
    """
    message = service_pb2.ModelStreamInferResponse.FromString(data)
    if message.error_message:
        return Reply(error=message.error_message)
    response = message.infer_response
    reply = Reply()
    final = response.parameters.get("triton_final_response")
    if final is not None:
        reply.final = final.bool_param
    raw = response.raw_output_contents
    lengths: memoryview | None = None
    shape: tuple[int, ...] = ()
    tokens: memoryview | None = None
    for index, output in enumerate(response.outputs):
        name = output.name
        if name == "output_ids":
            tokens = memoryview(raw[index]).cast("i")
            shape = tuple(output.shape)
        elif name == "sequence_length":
            lengths = memoryview(raw[index]).cast("i")
        else:
            kind = _DTYPES.get(output.datatype)
            if kind is not None:
                reply.extras[name] = np.frombuffer(raw[index], dtype=kind).reshape(tuple(output.shape))
    if tokens is not None:
        width = shape[-1] if shape else len(tokens)
        beams = len(tokens) // width if width else 0
        for beam in range(beams):
            length = lengths[beam] if lengths is not None and beam < len(lengths) else width
            reply.ids.append(tokens[beam * width : beam * width + min(max(length, 0), width)].tolist())
    if "sequence_index" in reply.extras:
        reply.sequence = int(reply.extras.pop("sequence_index").ravel()[0])
    return reply
