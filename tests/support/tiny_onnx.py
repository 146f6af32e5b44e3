"""ONNX files of a few nodes, written field by field (onnx/onnx.proto), and their Triton folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as mc

FLOAT, INT32, INT64, STRING, BOOL = 1, 6, 7, 8, 9  # TensorProto.DataType
Dim = int | str
Tensors = Mapping[str, tuple[int, Sequence[Dim]]]  # name → element type, dims; a word is a free dimension


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: int) -> bytes:
    parts = (
        [_field(1, name) for name in inputs] + [_field(2, name) for name in outputs] + [_field(4, operator)]
    )
    parts += [
        _field(5, _field(1, key) + _field(3, value) + _field(20, 2)) for key, value in attributes.items()
    ]
    return _field(1, b"".join(parts))


def _value(name: str, element_type: int, dims: Sequence[Dim]) -> bytes:
    shape = b"".join(_field(1, _field(1 if isinstance(dim, int) else 2, dim)) for dim in dims)
    return _field(1, name) + _field(2, _field(1, _field(1, element_type) + _field(2, shape)))


def onnx_bytes(
    nodes: Sequence[bytes], inputs: Tensors, outputs: Tensors, *, metadata: Mapping[str, str] | None = None
) -> bytes:
    """An ONNX model of opset 13."""
    graph = b"".join(nodes) + _field(2, "tiny")
    graph += b"".join(_field(11, _value(name, *kind)) for name, kind in inputs.items())
    graph += b"".join(_field(12, _value(name, *kind)) for name, kind in outputs.items())
    model = _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))
    return model + b"".join(
        _field(14, _field(1, key) + _field(2, value)) for key, value in (metadata or {}).items()
    )


_NAMES = {FLOAT: "FP32", INT32: "INT32", INT64: "INT64", STRING: "STRING", BOOL: "BOOL"}


def model_config(
    name: str, inputs: Tensors, outputs: Tensors, *, max_batch_size: int = 0, queue_delay_us: int = 0
) -> mc.ModelConfig:
    """The configuration that fits a graph, with dynamic batching where it has a batch dimension."""
    config = mc.ModelConfig(name=name, backend="onnxruntime", max_batch_size=max_batch_size)
    config.instance_group.add(count=1, kind=mc.ModelInstanceGroup.KIND_CPU)
    if max_batch_size:
        config.dynamic_batching.max_queue_delay_microseconds = queue_delay_us
    for target, tensors in ((config.input, inputs), (config.output, outputs)):
        for tensor, (element_type, dims) in tensors.items():
            kept = dims[1:] if max_batch_size else dims
            target.add(
                name=tensor,
                data_type=mc.DataType.Value(f"TYPE_{_NAMES[element_type]}"),
                dims=[dim if isinstance(dim, int) else -1 for dim in kept],
            )
    return config


def write_model(repository: Path, config: mc.ModelConfig, model: bytes, *, file: str = "model.onnx") -> Path:
    folder = repository / config.name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text_format.MessageToString(config))
    (folder / "1" / file).write_bytes(model)
    return folder
