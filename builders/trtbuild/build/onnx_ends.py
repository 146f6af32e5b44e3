"""Which operators stand at a graph's ends: evidence of what it takes and of what its outputs mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from trtbuild.build.onnx_file import axis_of, constant_tensors, import_onnx

_LOOKED_THROUGH = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Dropout"}
_BESIDE_LENGTH = {*_LOOKED_THROUGH, "Clip", "Max", "Expand", "Add"}  # what keeps a length from being 0
_ARITHMETIC = {"Add", "Sub", "Mul", "Div"}
_MOST_CHANNELS = 4
_SAME_VALUES = {"Identity", "Cast", "Transpose", "Dropout", "Resize"}
_NARROWEST_OF_BYTES = 16.0  # a deviation or divisor from which on it is one of values up to 255


def makers(model: Any) -> dict[str, str]:
    """Output → the operator that makes it, looking through those that only move values."""
    by_output = {name: node for node in model.graph.node for name in node.output}
    found = {}
    for item in model.graph.output:
        node = _maker(item.name, by_output)
        found[item.name] = node.op_type if node is not None else ""
        if node is not None and node.op_type == "Div" and _is_length(node.input[1], by_output):
            found[item.name] = "LpNormalization"
    return found


def scored(shaped: Any) -> dict[str, int]:
    """Output → how many values of its last part a Sigmoid or Softmax makes: classes behind boxes.

    Args:
        shaped: the model with inferred shapes.
    """
    by_output = {name: node for node in shaped.graph.node for name in node.output}
    shapes = {item.name: item.type.tensor_type.shape.dim for item in shaped.graph.value_info}
    found = {}
    for item in shaped.graph.output:
        node = _maker(item.name, by_output)
        if node is None or node.op_type != "Concat":
            continue
        last = _maker(node.input[-1], by_output)
        axis = axis_of(node)
        dims = shapes.get(node.input[-1], ())
        if last is not None and last.op_type in ("Sigmoid", "Softmax") and -len(dims) <= axis < len(dims):
            found[item.name] = int(dims[axis].dim_value)
    return found


def own_normalisation(model: Any, picture: str, channels: int) -> tuple[Literal[0, 1, 255], str]:
    """The arithmetic with constants that a graph begins with, where it is a normalisation.

    It brings a value x to (x - mean) / deviation. A mean above 1, or a deviation far above 1, is one of
    values from 0 to 255. A mean above 0 and up to 1 with a deviation up to 1 is one of values from 0 to 1,
    and so is a mere factor that brings those to 255. Anything else is no normalisation of either.

    Returns:
        The largest value that it takes, 0 for no normalisation, and its steps in words.
    """
    constants = _values(model.graph)
    factor, shift = np.ones(1), np.zeros(1)
    steps = []
    at = picture
    while True:
        users = [node for node in model.graph.node if at in node.input and node.op_type != "Shape"]
        if len(users) != 1 or any(item.name == at for item in model.graph.output):
            break
        node = users[0]
        if node.op_type in _ARITHMETIC:
            first = node.input[0] == at
            value = constants.get(node.input[1 if first else 0])
            if value is None or value.size not in (1, channels) or (node.op_type == "Div" and not first):
                break
            value = value.ravel()
            if node.op_type in ("Add", "Sub"):
                if node.op_type == "Sub" and not first:
                    factor, shift = -factor, -shift
                shift = shift + (-value if node.op_type == "Sub" and first else value)
            elif not np.all(value):
                break
            else:
                share = value if node.op_type == "Mul" else 1 / value
                factor, shift = factor * share, shift * share
            steps.append(f"{node.op_type} {', '.join(f'{number:.4g}' for number in value)}")
        elif node.op_type not in _SAME_VALUES or node.input[0] != at:
            break
        at = node.output[0]
    mean, deviation = -shift / factor, 1 / factor
    if not steps or not (np.all(deviation > 0) and np.all(mean >= 0)):
        return 0, ""
    words = ", then ".join(steps)
    if np.all(mean <= 255) and (mean.max() > 1 or deviation.min() >= _NARROWEST_OF_BYTES):
        return 255, words
    whole = 1.0 if np.any(mean > 0) else 1 / _NARROWEST_OF_BYTES
    return (1, words) if deviation.max() <= whole and mean.max() <= 1 else (0, "")


def _values(graph: Any) -> dict[str, Any]:
    """Constants of at most a value a channel by name, as float64."""
    onnx = import_onnx()
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    found = {
        name: onnx.numpy_helper.to_array(item).astype(np.float64)
        for name, item in constant_tensors(graph).items()
        if item.data_type in floats and not item.external_data and np.prod(item.dims) <= _MOST_CHANNELS
    }
    for node in graph.node:
        if node.op_type in _LOOKED_THROUGH and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def _maker(name: str, by_output: Mapping[str, Any]) -> Any:
    """The node that makes a tensor, looking through those that only move values; None: nothing does."""
    node = by_output.get(name)
    while node is not None and node.op_type in _LOOKED_THROUGH and node.input[0] in by_output:
        node = by_output[node.input[0]]
    return node


def _is_length(name: str, by_output: Mapping[str, Any]) -> bool:
    """Whether a divisor is the length of a vector."""
    node = by_output.get(name)
    while node is not None and node.op_type in _BESIDE_LENGTH:
        node = by_output.get(node.input[0])
    return node is not None and node.op_type in ("ReduceL2", "Sqrt", "Pow")
