"""Which operators make a graph's outputs: evidence of what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LOOKED_THROUGH = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Dropout"}
_BESIDE_LENGTH = {*_LOOKED_THROUGH, "Clip", "Max", "Expand", "Add"}  # what keeps a length from being 0


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
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        dims = shapes.get(node.input[-1], ())
        if last is not None and last.op_type in ("Sigmoid", "Softmax") and -len(dims) <= axis < len(dims):
            found[item.name] = int(dims[axis].dim_value)
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
