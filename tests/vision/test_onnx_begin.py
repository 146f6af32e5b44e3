"""Graphs that normalise their pictures themselves: what they take, and that they are given it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.graphs import FLOAT, UINT8, graph, node, tensor

from trtbuild.build.onnx_edit import with_pixels
from trtbuild.build.onnx_facts import ReadGraph, read_graph
from trtbuild.build.onnx_file import parse_onnx
from trtbuild.plan.vision import VisionSource, plan_vision
from trtbuild.spec import PreprocessSpec, VisionSpec

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]  # of ImageNet, of values from 0 to 255
Step = tuple[str, Any]


def beginning(*steps: Step, layout: str = "nchw", dtype: int = FLOAT) -> Any:
    """A network that gives each picture's mean colours after ``steps``: an operator and its constant."""
    nodes, tensors, at = [], [], "image"
    for place, (operator, value) in enumerate(steps):
        inputs, name = [at], f"step_{place}"
        options: dict[str, Any] = {}
        if operator in ("Transpose", "Cast"):
            options = {"perm": value} if operator == "Transpose" else {"to": value}
        else:
            last = layout == "nhwc" and ("Transpose", [0, 3, 1, 2]) not in steps[:place]
            values = np.asarray(value, np.float32).reshape(
                -1 if last or not np.ndim(value) else (1, -1, 1, 1)
            )
            tensors.append(tensor(f"constant_{place}", values))
            inputs.append(f"constant_{place}")
            if operator == "From":
                operator, inputs = "Sub", inputs[::-1]
        nodes.append(node(operator, inputs, [name], **options))
        at = name
    nodes.append(node("ReduceMean", [at], ["logits"], axes=[2, 3], keepdims=0))
    dims = ["batch", 3, 16, 16] if layout == "nchw" else ["batch", 16, 16, 3]
    return graph(nodes, [("image", dtype, dims)], [("logits", FLOAT, ["batch", 3])], tensors)


def read(model: Any) -> ReadGraph:
    return read_graph(parse_onnx(model.SerializeToString(), Path(), "model.onnx"))


def planned(found: ReadGraph, **preprocess: Any) -> Any:
    given = PreprocessSpec(**preprocess)
    entry = VisionSpec(name="model", model="model.onnx", task="classification", preprocess=given)
    return plan_vision(entry, VisionSource(entry, found.facts))


@pytest.mark.parametrize(
    ("steps", "layout", "expected"),
    [
        ([("Sub", MEAN), ("Div", STD)], "nchw", 255),
        ([("Div", 255.0)], "nchw", 255),
        ([("Mul", 1 / 255), ("Sub", [0.485, 0.456, 0.406]), ("Div", [0.229, 0.224, 0.225])], "nchw", 255),
        ([("Cast", FLOAT), ("Transpose", [0, 3, 1, 2]), ("Sub", MEAN), ("Div", STD)], "nhwc", 255),
        ([("Div", 127.5), ("Sub", 1.0), ("Transpose", [0, 3, 1, 2])], "nhwc", 255),
        ([("Sub", 127.5), ("Mul", 0.0078125)], "nchw", 255),  # ArcFace
        ([("Sub", [103.939, 116.779, 123.68])], "nchw", 255),  # Caffe
        ([("Sub", [0.485, 0.456, 0.406]), ("Div", [0.229, 0.224, 0.225])], "nchw", 1),
        ([("Add", [-0.485, -0.456, -0.406]), ("Mul", [4.37, 4.46, 4.44])], "nchw", 1),
        ([("Mul", 2.0), ("Sub", 1.0)], "nchw", 1),
        ([("Mul", 255.0), ("Sub", MEAN)], "nchw", 1),
        ([], "nchw", 0),
        # torchvision's Inception: from pictures normalised with ImageNet's mean to those of 0.5
        ([("Mul", [0.458, 0.448, 0.45]), ("Add", [-0.03, -0.088, -0.188])], "nchw", 0),
        ([("Add", 3.0)], "nchw", 0),  # as in a hard Swish
        ([("From", 1.0)], "nchw", 0),  # a negative
        ([("Mul", 0.0)], "nchw", 0),
        ([("Mul", 2.0)], "nchw", 0),  # may be anything
    ],
)
def test_the_first_nodes_tell_which_values_a_graph_takes(
    steps: list[Step], layout: str, expected: int
) -> None:
    assert read(beginning(*steps, layout=layout)).facts.own_range == expected


@pytest.mark.parametrize(
    ("steps", "dtype"),
    [
        ([("Sub", MEAN), ("Div", STD)], FLOAT),
        ([("Sub", [m / 255 for m in MEAN]), ("Div", [s / 255 for s in STD])], FLOAT),
        ([("Cast", FLOAT), ("Sub", MEAN), ("Div", STD)], UINT8),
    ],
)
def test_pixels_are_normalised_once(steps: list[Step], dtype: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    found = read(beginning(*steps, dtype=dtype))
    plan, findings = planned(found)
    served = with_pixels(
        found.model, picture="image", layout="nchw", size=(16, 16), scale=plan.picture.scale,
        offset=plan.picture.offset,
    )  # fmt: skip
    session = onnxruntime.InferenceSession(served.SerializeToString(), providers=["CPUExecutionProvider"])
    pixels = np.full((1, 16, 16, 3), (200, 100, 50), np.uint8)
    expected = (np.array([200, 100, 50]) - MEAN) / STD
    np.testing.assert_allclose(session.run(None, {"pixels": pixels})[0][0], expected, rtol=1e-4)
    (said,) = (finding for finding in findings if finding.id == "vision.normalised")
    assert said.severity == "info"
    assert "Sub" in said.message
    assert "Div" in said.message
    assert not any(finding.id == "vision.guessed" for finding in findings)


def test_a_normalisation_that_is_also_asked_for_is_doubted() -> None:
    found = read(beginning(("Sub", MEAN), ("Div", STD)))
    plan, findings = planned(found, mean=(0.5,), std=(0.25,))
    assert plan.picture.offset == (-2.0,) * 3
    (said,) = (finding for finding in findings if finding.id == "vision.normalised")
    assert (said.severity, "come before it" in said.message) == ("warning", True)

    _, findings = planned(found, mean=(0.0,), std=(1 / 255,))  # what it takes
    assert {finding.severity for finding in findings} == {"info"}


def test_constants_and_pictures_are_followed_through_what_moves_them() -> None:
    nodes = [
        node("Resize", ["image", "", "scales"], ["small"]),
        node("Constant", [], ["mean"], value=tensor("value", np.array(MEAN, np.float32))),
        node("Unsqueeze", ["mean", "axes"], ["row"]),
        node("Sub", ["small", "row"], ["logits"]),
    ]
    dims = ["batch", 3, 16, 16]
    constants = [tensor("scales", np.array([1, 1, 0.5, 0.5], np.float32)), tensor("axes", np.array([1, 2]))]
    model = graph(nodes, [("image", FLOAT, dims)], [("logits", FLOAT, None)], constants)
    assert read(model).facts.own_range == 255


def test_a_picture_that_is_used_twice_is_not_normalised_for_all() -> None:
    model = beginning(("Div", 255.0))
    model.graph.node.append(node("ReduceMean", ["image"], ["raw"], axes=[2, 3], keepdims=0))
    model.graph.output.append(graph([], [], [("raw", FLOAT, ["batch", 3])]).graph.output[0])
    assert read(model).facts.own_range == 0
