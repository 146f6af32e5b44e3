"""ONNX graphs of a few nodes, made with the package ``onnx``: networks of every task, whose answers are
known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

FLOAT, FLOAT16, UINT8, INT64 = 1, 10, 2, 7  # TensorProto.DataType
Dim = int | str | None
Value = tuple[str, int, Sequence[Dim]]  # name, element type, dims


def tensor(name: str, values: Any) -> Any:
    return onnx.numpy_helper.from_array(np.ascontiguousarray(values), name)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(operator, list(inputs), list(outputs), **attributes)


def graph(
    nodes: Sequence[Any],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    tensors: Sequence[Any] = (),
    *,
    opset: int = 13,
    metadata: dict[str, str] | None = None,
) -> Any:
    """An ``onnx.ModelProto``."""
    values = [[onnx.helper.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
    made = onnx.helper.make_graph(nodes, "tiny", *values, list(tensors))
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
    onnx.helper.set_model_props(model, metadata or {})
    return model


def classifier(
    classes: int = 10, *, side: int = 16, batch: Dim = "batch", output: str = "logits", **options: Any
) -> Any:
    """Scores that depend on the picture's mean colours; its batch is written into a Reshape."""
    weights = np.random.default_rng(1).normal(size=(3, classes)).astype(np.float32)
    nodes = [
        node("GlobalAveragePool", ["image"], ["pooled"]),
        node("Reshape", ["pooled", "shape"], ["features"]),
        node("MatMul", ["features", "weights"], [output]),
    ]
    shape = np.array([batch if isinstance(batch, int) else -1, 3], np.int64)
    return graph(
        nodes,
        [("image", FLOAT, [batch, 3, side, side])],
        [(output, FLOAT, [batch, classes])],
        [tensor("weights", weights), tensor("shape", shape)],
        **options,
    )


def constant_answer(answer: Any, *, side: int = 64, dtype: int = FLOAT, **options: Any) -> Any:
    """A network that gives ``answer`` [1, …] for every picture, whatever is on it."""
    rest = [int(dim) for dim in answer.shape[1:]]
    nodes = [
        node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0),
        node("Mul", ["mean", "zero"], ["nothing"]),
        node("Reshape", ["nothing", "shape"], ["column"]),
        node("Add", ["column", "answer"], ["output"]),
    ]
    tensors = [
        tensor("zero", np.zeros(1, np.float32)),
        tensor("shape", np.array([-1, *[1] * len(rest)], np.int64)),
        tensor("answer", np.asarray(answer, np.float32)),
    ]
    return graph(
        nodes,
        [("image", dtype, ["batch", 3, side, side])],
        [("output", FLOAT, ["batch", *rest])],
        tensors,
        **options,
    )


def save(model: Any, path: Path, **options: Any) -> Path:
    onnx.save(model, str(path), **options)
    return path
