"""The few fields of an ONNX file that are read or added here, without the ``onnx`` package.

An ONNX file is one protobuf message, and protobuf merges what is concatenated: repeated fields are appended,
embedded messages merged. So nodes and outputs are added by appending bytes, and the weights are not touched.
Field numbers are those of ``onnx/onnx.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trtbuild.errors import ModelSourceError

LAST_OPSET = 17  # of with_best: from 18 on ReduceMax takes its axes as an input

_VARINT, _LENGTH, _FIXED64, _FIXED32 = 0, 2, 1, 5  # wire types
_MODEL_GRAPH, _MODEL_OPSET, _MODEL_METADATA, _GRAPH_NODE, _GRAPH_OUTPUT = 7, 8, 14, 1, 12
_FLOAT, _INT64 = 1, 7  # TensorProto.DataType
_ATTRIBUTE_INT, _ATTRIBUTE_INTS = 2, 7  # AttributeProto.AttributeType


@dataclass(frozen=True)
class OnnxFacts:
    """What is read of an ONNX file.

    ``opset`` is the version of the standard operators; ``metadata`` are its ``metadata_props``.
    """

    opset: int
    outputs: tuple[str, ...]
    metadata: Mapping[str, str]


def read_facts(path: Path) -> OnnxFacts:
    """Reads an ONNX file's facts; its weights are passed over.

    Raises:
        ModelSourceError: if the file is no such protobuf message.
    """
    opset, outputs, properties = 0, [], {}
    try:
        for number, value in _fields(memoryview(path.read_bytes())):
            if number == _MODEL_GRAPH:
                infos = [info for field, info in _fields(value) if field == _GRAPH_OUTPUT]
                outputs += [_text(info, 1) for info in infos]
            elif number == _MODEL_OPSET:
                opset = opset if _text(value, 1) else _integers(value).get(2, 0)
            elif number == _MODEL_METADATA:
                properties[_text(value, 1)] = _text(value, 2)
    except (IndexError, ValueError) as error:
        raise ModelSourceError(f"{path} is no ONNX file: {error!r}") from error
    return OnnxFacts(opset, tuple(outputs), properties)


def with_best(model: bytes, scores: str) -> bytes:
    """An ONNX model (opset 11 to `LAST_OPSET`) with two more outputs that summarise one of its own.

    Args:
        model: the file's content.
        scores: an output FLOAT[batch, steps, classes].

    Returns:
        The same model with ``best_id`` INT64[batch, steps], the class of the highest score at each step, and
        ``best_score`` FLOAT[batch, steps], that score.
    """
    keep = _attribute("keepdims", 0)
    graph = (
        _node("ArgMax", scores, "best_id", _attribute("axis", 2) + keep)
        + _node("ReduceMax", scores, "best_score", _attribute("axes", [2]) + keep)
        + _output("best_id", _INT64)
        + _output("best_score", _FLOAT)
    )
    return model + _bytes(_MODEL_GRAPH, graph)


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of each length-delimited field."""
    return ((number, value) for number, value in _all_fields(data) if isinstance(value, memoryview))


def _text(data: memoryview, number: int) -> str:
    """A string field, empty where it is not set."""
    return next((bytes(value).decode("utf-8") for field, value in _fields(data) if field == number), "")


def _integers(data: memoryview) -> dict[int, int]:
    return {number: value for number, value in _all_fields(data) if isinstance(value, int)}


def _all_fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _LENGTH:
            size, at = _read_varint(data, at)
            if at + size > len(data):
                raise ValueError("a field reaches over the end")
            yield number, data[at : at + size]
            at += size
        elif kind == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind}")


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(number: int, content: bytes | str) -> bytes:
    raw = content.encode("utf-8") if isinstance(content, str) else content
    return _varint(number << 3 | _LENGTH) + _varint(len(raw)) + raw


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _attribute(name: str, value: int | list[int]) -> bytes:
    if isinstance(value, int):
        content = _integer(3, value) + _integer(20, _ATTRIBUTE_INT)
    else:
        content = b"".join(_integer(8, item) for item in value) + _integer(20, _ATTRIBUTE_INTS)
    return _bytes(5, _bytes(1, name) + content)  # NodeProto.attribute


def _node(operator: str, source: str, target: str, attributes: bytes) -> bytes:
    named = _bytes(1, source) + _bytes(2, target) + _bytes(3, target)  # input, output, name
    return _bytes(_GRAPH_NODE, named + _bytes(4, operator) + attributes)


def _output(name: str, element_type: int) -> bytes:
    shape = b"".join(_bytes(1, _bytes(2, dimension)) for dimension in ("batch", "steps"))
    tensor = _integer(1, element_type) + _bytes(2, shape)
    return _bytes(_GRAPH_OUTPUT, _bytes(1, name) + _bytes(2, _bytes(1, tensor)))
