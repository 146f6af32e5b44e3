"""An ONNX graph's tensors, and whether a Triton configuration agrees with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# ONNX element type as onnxruntime names it → Triton's data type (onnxruntime_backend, onnxruntime_utils.cc).
_DATA_TYPES = {
    "tensor(float)": "TYPE_FP32",
    "tensor(float16)": "TYPE_FP16",
    "tensor(double)": "TYPE_FP64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
    "tensor(bool)": "TYPE_BOOL",
    "tensor(string)": "TYPE_STRING",
}


class ConfigError(ValueError):
    """The configuration cannot be served; the message says why and what would work."""


@dataclass(frozen=True)
class GraphTensor:
    """An input or output of the graph; ``dims`` holds −1 where a dimension is free."""

    name: str
    data_type: str
    dims: tuple[int, ...]

    @classmethod
    def of(cls, argument: Any) -> GraphTensor:
        """From onnxruntime's ``NodeArg``.

        Raises:
            ConfigError: for an element type that numpy cannot hold, or no tensor at all.
        """
        if argument.type not in _DATA_TYPES:
            raise ConfigError(f"tensor {argument.name} is {argument.type}, which cannot be served here")
        dims = tuple(dim if isinstance(dim, int) and dim >= 0 else -1 for dim in argument.shape)
        return cls(argument.name, _DATA_TYPES[argument.type], dims)


def check(config: Mapping[str, Any], inputs: Iterable[GraphTensor], outputs: Iterable[GraphTensor]) -> None:
    """Compares a configuration with the graph.

    The configuration names every input and any of the outputs.

    Raises:
        ConfigError: for an unknown or missing name, another data type, or dimensions that cannot fit.
    """
    batched = int(config.get("max_batch_size", 0)) > 0
    graph_inputs = {tensor.name: tensor for tensor in inputs}
    graph_outputs = {tensor.name: tensor for tensor in outputs}
    for entry in config["input"]:
        _check_tensor("input", entry, graph_inputs, batched)
    for entry in config["output"]:
        _check_tensor("output", entry, graph_outputs, batched)
    if missing := set(graph_inputs) - {entry["name"] for entry in config["input"]}:
        raise ConfigError(
            f"the graph also needs the input(s) {', '.join(sorted(missing))}: declare them in config.pbtxt"
        )


def _check_tensor(
    kind: str, entry: Mapping[str, Any], graph: Mapping[str, GraphTensor], batched: bool
) -> None:
    name = entry["name"]
    if name not in graph:
        raise ConfigError(f"the graph has no {kind} {name!r}; its {kind}s are {', '.join(sorted(graph))}")
    tensor = graph[name]
    if entry["data_type"] != tensor.data_type:
        raise ConfigError(
            f"{kind} {name} is {entry['data_type']} in config.pbtxt and {tensor.data_type} in the graph"
        )
    declared = entry.get("reshape", {}).get("shape", entry["dims"]) if "reshape" in entry else entry["dims"]
    dims = tuple(int(dim) for dim in declared)
    if batched and tensor.dims and tensor.dims[0] != -1:
        raise ConfigError(
            f"{kind} {name} has a fixed first dimension of {tensor.dims[0]} in the graph, so requests cannot "
            f"be batched: export the graph with a free batch dimension, or set max_batch_size to 0 and dims "
            f"to {list(tensor.dims)}"
        )
    full = (-1, *dims) if batched else dims
    if tensor.dims and (
        len(full) != len(tensor.dims)
        or any(-1 not in pair and pair[0] != pair[1] for pair in zip(full, tensor.dims, strict=True))
    ):
        raise ConfigError(
            f"{kind} {name} has dims {list(dims)} in config.pbtxt"
            f"{' behind the batch dimension' if batched else ''} and {list(tensor.dims)} in the graph"
        )


def completed(inputs: Iterable[GraphTensor], outputs: Iterable[GraphTensor]) -> dict[str, Any]:
    """What Triton's own backend fills in where a configuration names no tensors.

    Returns:
        ``max_batch_size`` (4 where every tensor has a free first dimension, else 0; 4 is the C++ backend's
        default-max-batch-size), ``input`` and ``output``.
    """
    inputs, outputs = list(inputs), list(outputs)
    batched = all(tensor.dims and tensor.dims[0] == -1 for tensor in [*inputs, *outputs])

    def entries(tensors: list[GraphTensor]) -> list[dict[str, Any]]:
        return [
            {"name": item.name, "data_type": item.data_type, "dims": list(item.dims[1 if batched else 0 :])}
            for item in tensors
        ]

    return {"max_batch_size": 4 if batched else 0, "input": entries(inputs), "output": entries(outputs)}
