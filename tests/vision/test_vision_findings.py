"""What is said of a model file's plan: what it was taken for, what is left out, what was guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.graphs import FLOAT, classifier, graph, node, tensor
from tests.vision.test_vision_plan import facts, plan

from trtbuild.build.onnx_facts import read_graph
from trtbuild.build.onnx_file import parse_onnx
from trtbuild.catalog.vision import TensorRow
from trtbuild.errors import ModelSourceError, PlanError
from trtbuild.plan.model import Finding
from trtbuild.plan.vision import plan_vision
from trtbuild.spec import PreprocessSpec, Task, VisionSpec

IMAGE = ("image", FLOAT, ["batch", 3, 16, 16])


def read(model: Any) -> Any:
    return read_graph(parse_onnx(model.SerializeToString(), Path(), "model.onnx"))


def said(findings: list[Finding], rule: str) -> list[tuple[str, str]]:
    return [(finding.severity, finding.message) for finding in findings if finding.id == rule]


def test_a_guessed_mean_is_a_warning_and_a_known_one_is_none() -> None:
    ((severity, message),) = said(plan(facts({"logits": (1000,)}))[1], "vision.guessed")
    assert severity == "warning"
    assert "is a guess" in message
    assert "mean 0.485, 0.456, 0.406" in message
    given = PreprocessSpec(mean=(0.5,), std=(0.5,))
    for known in (
        plan(facts({"logits": (1000,)}), preprocess=given),
        plan(facts({"logits": (1000,)}, dtype="UINT8")),
        plan(facts({"logits": (1000,)}, metadata={"task": "classify"})),
        plan(facts({"output0": (84, 8400)})),
    ):
        assert not said(known[1], "vision.guessed")


def test_outputs_that_are_not_served_are_named() -> None:
    both = facts({"logits": (5,), "embedding": (128,)})
    for task in (None, "classification"):
        ((_, message),) = said(plan(both, task=task)[1], "vision.outputs")
        assert "not served: embedding" in message
    assert not said(plan(both, task="raw")[1], "vision.outputs")
    assert not said(plan(facts({"logits": (5,)}))[1], "vision.outputs")


def test_scores_of_their_own_are_called_independent() -> None:
    for task in (None, "classification"):
        own = plan(facts({"output": (14,)}, makers={"output": "Sigmoid"}), task=task)[1]
        assert "independent (multi-label)" in said(own, "vision.scores")[0][1]
    shared = plan(facts({"output": (14,)}, makers={"output": "Softmax"}))[1]
    assert not said(shared, "vision.scores")


def test_boxes_of_a_yolo_with_efficient_nms_are_of_a_letterbox() -> None:
    names = {"num_dets": (1,), "det_boxes": (100, 4), "det_scores": (100,), "det_classes": (100,)}
    found, _ = plan(facts(names))
    assert (found.task, found.answer.head, found.picture.fit) == (Task.DETECTION, "boxes", "letterbox")
    others = {"boxes": (100, 4), "scores": (100,), "labels": (100,)}
    assert plan(facts(others))[0].picture.fit == "stretch"


def test_rows_of_seven_without_a_batch_are_boxes() -> None:
    """YOLOv7 end to end: NonMaxSuppression, then rows that say which picture they are of."""
    model = graph(
        [
            node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["chosen"]),
            node("Cast", ["chosen"], ["rows"], to=FLOAT),
            node("ReduceMean", ["image"], ["mean"], keepdims=0),
            node("Mul", ["mean", "zero"], ["nothing"]),
            node("Add", ["rows", "nothing"], ["three"]),
            node("Concat", ["three", "three", "one"], ["output"], axis=1),
        ],
        [("image", FLOAT, ["batch", 3, 64, 64])],
        [("output", FLOAT, ["n", 7])],
        [
            tensor("boxes", np.array([[[0, 0, 10, 10], [30, 30, 40, 40]]], np.float32)),
            tensor("scores", np.array([[[0.9, 0.8]]], np.float32)),
            tensor("most", np.array([9], np.int64)),
            tensor("iou", np.array([0.5], np.float32)),
            tensor("least", np.array([0.1], np.float32)),
            tensor("zero", np.float32(0)),
            tensor("one", np.ones((2, 1), np.float32)),
        ],
    )
    found = read(model)
    assert found.unbatched == ("output",)
    planned, _ = plan(found.facts)
    assert (planned.task, planned.answer.head, planned.picture.fit) == (Task.DETECTION, "boxes", "letterbox")
    # as many numbers of one picture each are classes
    assert plan(facts({"output": (7,)}))[0].task is Task.CLASSIFICATION


@pytest.mark.parametrize(
    ("nodes", "reason", "remedy"),
    [
        (
            [node("ReduceMean", ["image"], ["y"], axes=[0, 2, 3], keepdims=0)],
            "its batch dimension is free, but its output y has no batch dimension",
            "every output has the batch as its first dimension",
        ),
        (
            [
                node("ReduceMean", ["image"], ["flat"], axes=[2, 3], keepdims=0),
                node("Softmax", ["flat"], ["y"], axis=0),
            ],
            "two pictures at once give another y than each alone",
            "each picture's answer depends on that picture alone",
        ),
        (
            [
                node("ReduceMean", ["image"], ["flat"], axes=[2, 3], keepdims=0),
                node("Reshape", ["flat", "three"], ["y"]),
            ],
            "two pictures at once fail",
            "left free inside it too",
        ),
    ],
)
def test_what_would_let_pictures_run_together_fits_the_reason(nodes: Any, reason: str, remedy: str) -> None:
    model = graph(nodes, [IMAGE], [("y", FLOAT, None)], [tensor("three", np.array([1, 3], np.int64))])
    found = read(model).facts
    assert reason in found.batch_note
    (finding,) = (item for item in plan(found, task="raw")[1] if item.id == "vision.batch")
    assert remedy in finding.remedy
    assert "with a free batch" not in finding.remedy


def cyclic(*, operator: str = "Relu", opset: int = 13, ir_version: int = 8, element: int = FLOAT) -> Any:
    nodes = [node("Add", ["a", "image"], ["b"]), node(operator, ["b"], ["a"])]
    image = (IMAGE[0], element, IMAGE[2])
    model = graph(nodes, [image], [("a", element, None)], opset=opset)
    model.ir_version = ir_version
    return model


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (cyclic(), ["the graph itself is at fault: onnx.checker.check_model('model.onnx'"]),
        (cyclic(operator="EfficientNMS_TRT"), ["in place of EfficientNMS_TRT"]),
        (cyclic(operator="Own", opset=11), ["in place of Own", "an opset from 13 to 17"]),
        (cyclic(ir_version=99), ["IR version 99 is newer than any"]),
        (cyclic(element=11), ["export it in float32"]),
    ],
)
def test_advice_for_a_graph_that_cannot_be_loaded_is_what_it_does_not_meet(
    model: Any, expected: list[str]
) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ModelSourceError, match="cannot be loaded by onnxruntime") as error:
        read(model)
    assert len(error.value.remedies) == len(expected)
    for remedy, words in zip(error.value.remedies, expected, strict=True):
        assert words in remedy


def test_text_is_no_scores() -> None:
    for dims in ((3, 640, 640), (640, 640), (5,), (300, 4)):
        rows = (TensorRow(name="y", dtype="STRING", dims=(-1, *dims)),)
        found, findings = plan(facts({}).model_copy(update={"outputs": rows}))
        assert found.task is Task.RAW
        assert "would fit" not in said(findings, "vision.raw")[0][1]
    boxes = tuple(
        TensorRow(name=name, dtype=dtype, dims=(-1, *dims))
        for name, dtype, dims in [("b", "FP32", (9, 4)), ("s", "STRING", (9,)), ("labels", "INT64", (9,))]
    )
    assert plan(facts({}).model_copy(update={"outputs": boxes}))[0].task is Task.RAW


def test_an_output_that_is_declared_twice_is_a_fault_of_the_file() -> None:
    model = classifier(5)
    model.graph.output.append(model.graph.output[0])
    with pytest.raises(ModelSourceError, match="declares its output logits twice"):
        read(model)


@pytest.mark.parametrize("count", [2, 3, 5, 31])
def test_a_few_numbers_are_classes(count: int) -> None:
    found, findings = plan(facts({"output": (count,)}))
    assert (found.task, found.answer.classes) == (Task.CLASSIFICATION, count)
    assert "too few for an embedding" in said(findings, "vision.task")[0][1]


def test_a_few_numbers_that_may_be_something_else_are_asked_for() -> None:
    for name, count in (("output", 32), ("landmarks", 10)):
        with pytest.raises(PlanError, match="could be for classification or embedding"):
            plan(facts({name: (count,)}))
    normalised = plan(facts({"output": (16,)}, makers={"output": "LpNormalization"}))[0]
    assert normalised.task is Task.EMBEDDING


def test_preparation_that_several_networks_have_of_their_own_is_refused() -> None:
    with pytest.raises(PlanError, match=r"preprocess\.mean cannot be given to ocr"):
        plan_vision(VisionSpec(preprocess=PreprocessSpec(mean=(0.5,))))
