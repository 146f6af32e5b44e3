"""What a model file is taken for, and what is planned for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.plans import detector_plan, llm_plan, plan_of

from trtbuild.catalog.gpus import find_gpu
from trtbuild.catalog.versions import find_container
from trtbuild.catalog.vision import TensorRow
from trtbuild.errors import PlanError
from trtbuild.plan.explain import explain
from trtbuild.plan.graph import GraphFacts
from trtbuild.plan.model import LedgerItem
from trtbuild.plan.planner import make_plan
from trtbuild.plan.vision import VisionSource, plan_vision
from trtbuild.repository.vision_tensors import answer_tensors
from trtbuild.spec import DeploymentSpec, PostprocessSpec, PreprocessSpec, Target, Task, VisionSpec

Outputs = dict[str, tuple[int, ...]]


def facts(outputs: Outputs, *, size: int = 640, dtype: str = "FP32", **changes: Any) -> GraphFacts:
    rows = [
        TensorRow(name=name, dtype="INT64" if "label" in name else "FP32", dims=(-1, *dims))
        for name, dims in outputs.items()
    ]
    values: dict[str, Any] = {
        "origin": "model.onnx",
        "opset": 17,
        "inputs": (TensorRow(name="images", dtype=dtype, dims=(-1, 3, size, size)),),
        "outputs": tuple(rows),
        "weights_bytes": 40_000_000,
        "activation_bytes": 20_000_000,
        "picture": "images",
    }
    return GraphFacts(**{**values, **changes})


def plan(graph: GraphFacts, *, labels: int = 0, **spec: Any) -> Any:
    file = "labels.txt" if labels and "names" not in graph.metadata else None
    entry = VisionSpec(name="model", model="model.onnx", labels=file, **spec)
    return plan_vision(entry, VisionSource(entry, graph, labels))


@pytest.mark.parametrize(
    ("outputs", "size", "task", "head", "classes"),
    [
        ({"logits": (1000,)}, 224, Task.CLASSIFICATION, "", 1000),
        ({"prob": (12, 1, 1)}, 224, Task.CLASSIFICATION, "", 12),
        ({"image_embeds": (512,)}, 224, Task.EMBEDDING, "", 0),
        ({"output0": (84, 8400)}, 640, Task.DETECTION, "yolov8", 80),  # 80² + 40² + 20² cells
        ({"output0": (8400, 84)}, 640, Task.DETECTION, "yolov8", 80),
        ({"output": (25200, 85)}, 640, Task.DETECTION, "yolov5", 80),
        ({"a": (255, 13, 13), "b": (255, 26, 26)}, 416, Task.DETECTION, "yolov3", 80),
        ({"output0": (300, 84)}, 640, Task.DETECTION, "detr", 80),
        ({"logits": (300, 80), "pred_boxes": (300, 4)}, 640, Task.DETECTION, "detr", 80),
        ({"output0": (300, 6)}, 640, Task.DETECTION, "boxes", 0),
        ({"labels": (300,), "boxes": (300, 4), "scores": (300,)}, 640, Task.DETECTION, "boxes", 0),
        ({"out": (21, 640, 640)}, 640, Task.SEGMENTATION, "", 21),
        ({"logits": (150, 160, 160)}, 640, Task.SEGMENTATION, "", 150),
        ({"output0": (116, 8400), "output1": (32, 160, 160)}, 640, Task.SEGMENTATION, "yolov8", 80),
        ({"label_map": (640, 640)}, 640, Task.SEGMENTATION, "", 0),
        ({"output": (8400, 85)}, 640, Task.DETECTION, "yolov5", 80),  # YOLOX: one a cell, with an objectness
        (
            {"detection_boxes": (100, 4), "detection_scores": (100,), "detection_classes": (100,)},
            300,
            Task.DETECTION,
            "tf",
            0,
        ),
        ({"out": (21, 640, 640), "aux": (21, 640, 640)}, 640, Task.SEGMENTATION, "", 21),
        ({"last_hidden_state": (197, 768), "pooler_output": (768,)}, 224, Task.EMBEDDING, "", 0),
        ({"last_hidden_state": (197, 768)}, 224, Task.RAW, "", 0),
        ({"predicted_depth": (640, 640)}, 640, Task.RAW, "", 0),
        ({"depth": (1, 640, 640)}, 640, Task.RAW, "", 0),
        ({"super_resolution": (3, 1280, 1280)}, 640, Task.RAW, "", 0),
        ({"backbone": (512, 20, 20)}, 640, Task.RAW, "", 0),
        ({"output": (3, 640, 640)}, 640, Task.RAW, "", 0),  # a picture, most likely
        ({"output": (17, 160, 160)}, 640, Task.RAW, "", 0),  # of a pose, most likely
        ({"output": (40, 97)}, 320, Task.RAW, "", 0),  # characters of a line of text
        ({"output0": (56, 8400)}, 640, Task.RAW, "", 0),  # a person and 17 × 3 numbers of its pose
        ({"output0": (20, 8400)}, 640, Task.RAW, "", 0),  # 15 classes and an angle
        ({"output0": (25200, 57)}, 640, Task.RAW, "", 0),
        ({"output0": (5, 8400)}, 640, Task.DETECTION, "yolov8", 1),
        ({"scores": (8732, 81), "boxes": (8732, 4)}, 300, Task.RAW, "", 0),
        ({"age": (101,), "gender": (2,)}, 64, Task.RAW, "", 0),
        ({"age": (1,), "gender": (2,)}, 64, Task.RAW, "", 0),
        ({"what": (7, 9, 11, 13)}, 640, Task.RAW, "", 0),
    ],
)
def test_a_task_is_told_by_the_outputs(
    outputs: Outputs, size: int, task: Task, head: str, classes: int
) -> None:
    found, _ = plan(facts(outputs, size=size))
    assert (found.task, found.answer.head, found.answer.classes) == (task, head, classes)


def test_a_vector_that_may_be_either_is_asked_for() -> None:
    with pytest.raises(PlanError, match="could be for classification or embedding") as error:
        plan(facts({"output": (64,)}))
    assert error.value.remedies == ("--task classification", "--task embedding")
    assert plan(facts({"output": (64,)}), task="embedding")[0].task is Task.EMBEDDING
    assert plan(facts({"output": (64,)}), labels=64)[0].task is Task.CLASSIFICATION


def test_one_number_a_point_may_be_a_mask_or_not() -> None:
    found, findings = plan(facts({"output": (1, 640, 640)}))
    assert found.task is Task.RAW
    (raw,) = (finding for finding in findings if finding.id == "vision.raw")
    assert "would fit segmentation (it gives one number a point)" in raw.message
    assert raw.remedy.startswith("--task segmentation")
    mask, _ = plan(facts({"output": (1, 640, 640)}, makers={"output": "Sigmoid"}))
    assert (mask.task, mask.answer.activation) == (Task.SEGMENTATION, "none")
    assert plan(facts({"output": (1, 640, 640)}), task="segmentation")[0].answer.activation == "sigmoid"


def test_classes_of_channels_last_are_the_last() -> None:
    image = TensorRow(name="images", dtype="FP32", dims=(-1, 640, 640, 3))
    found, _ = plan(facts({"out": (640, 640, 21)}, inputs=(image,), layout="nhwc"))
    assert (found.task, found.answer.classes) == (Task.SEGMENTATION, 21)


def test_an_objectness_is_told_by_the_labels() -> None:
    rows: Outputs = {"output": (8400, 20)}
    with pytest.raises(PlanError, match="an objectness and then classes"):
        plan(facts(rows))
    assert plan(facts(rows), labels=15)[0].answer.head == "yolov5"
    assert plan(facts(rows), labels=16)[0].answer.head == "yolov8"
    asked = PostprocessSpec(head="yolov5")
    assert plan(facts(rows), postprocess=asked)[0].answer.classes == 15


def test_independent_scores_are_classes() -> None:
    found, _ = plan(facts({"output": (14,)}, makers={"output": "Sigmoid"}))
    assert (found.task, found.answer.activation) == (Task.CLASSIFICATION, "none")


@pytest.mark.parametrize("task", ["pose", "obb"])
def test_a_task_that_the_file_names_and_nobody_knows_is_raw(task: str) -> None:
    found, findings = plan(facts({"output0": (56, 8400)}, metadata={"task": task}))
    assert found.task is Task.RAW
    assert any(f"for '{task}'" in finding.message for finding in findings)
    with pytest.raises(
        PlanError, match=f"detection was asked for, and its file says that it is for '{task}'"
    ):
        plan(facts({"output0": (56, 8400)}, metadata={"task": task}), task="detection")


def test_more_than_shapes_tells_what_is_behind_a_box() -> None:
    cells: Outputs = {"output0": (24, 8400)}
    assert plan(facts(cells))[0].task is Task.RAW
    assert plan(facts(cells, scored={"output0": 20}))[0].answer.classes == 20
    assert plan(facts(cells), labels=20)[0].answer.head == "yolov8"
    assert plan(facts(cells), task="detection")[0].answer.classes == 20
    two: Outputs = {"output0": (300, 6)}  # NMS done, or an RT-DETR of two classes
    assert plan(facts(two, scored={"output0": 2}))[0].answer.head == "detr"


def test_whose_labels_do_not_match_is_said() -> None:
    names = {"task": "detect", "names": "{0: 'a', 1: 'b'}"}
    with pytest.raises(PlanError, match="its file names 2 classes, and the network tells 80 classes apart"):
        plan(facts({"output0": (84, 8400)}, metadata=names), labels=2)


def test_boxes_of_an_ssd_are_served_when_they_are_asked_for() -> None:
    boxes: Outputs = {"scores": (8732, 21), "boxes": (8732, 4)}
    found, findings = plan(facts(boxes, size=300), task="detection")
    answer = found.answer
    assert (answer.head, answer.outputs, answer.classes) == ("ssd", ("boxes", "scores"), 20)
    assert answer.activation == "softmax"
    assert any("corners from 0 to 1" in finding.message for finding in findings)
    assert plan(facts(boxes, size=300), labels=21)[0].answer.classes == 21  # "nothing" has a name too


def test_ultralytics_classifiers_take_pictures_as_they_are() -> None:
    scores: Outputs = {"output0": (1000,)}
    picture = plan(facts(scores, size=224, metadata={"task": "classify"}))[0].picture
    assert (picture.crop_share, picture.offset) == (1.0, (0.0,) * 3)
    assert picture.scale == pytest.approx((1 / 255,) * 3)


def test_detrs_last_class_is_nothing() -> None:
    queries: Outputs = {"logits": (100, 92), "pred_boxes": (100, 4)}
    for labels in (0, 91):
        assert plan(facts(queries), labels=labels)[0].answer.activation == "softmax"
    own: Outputs = {"logits": (100, 4), "pred_boxes": (100, 4)}
    with pytest.raises(PlanError, match="3 labels were given") as error:
        plan(facts(own), labels=3)
    assert "activation: softmax" in error.value.remedies[-1]


def test_end_to_end_boxes_are_of_a_letterbox() -> None:
    assert plan(facts({"output0": (300, 6)}))[0].picture.fit == "letterbox"
    # RT-DETR is trained on stretched squares, Ultralytics' too (models/rtdetr/predict.py: scale_fill).
    assert plan(facts({"output0": (300, 84)}, metadata={"task": "detect"}))[0].picture.fit == "stretch"


def test_a_free_size_is_that_of_the_task_that_was_found() -> None:
    free = TensorRow(name="images", dtype="FP32", dims=(-1, 3, -1, -1))
    picture = plan(facts({"logits": (1000,)}, inputs=(free,)))[0].picture
    assert (picture.width, picture.height) == (224, 224)


def test_transparency_is_from_0_to_1() -> None:
    image = TensorRow(name="images", dtype="FP32", dims=(-1, 4, 224, 224))
    picture = plan(facts({"logits": (1000,)}, inputs=(image,)))[0].picture
    assert picture.scale[3] == pytest.approx(1 / 255)
    assert picture.offset[3] == 0.0


def test_no_two_outputs_of_a_pipeline_have_one_name() -> None:
    found, _ = plan(facts({"error": (7, 9, 11, 13), "error_output": (3, 9, 11, 13)}))
    names = [tensor.name for tensor in answer_tensors(found)]
    assert sorted(names) == sorted(set(names))


def test_a_task_that_the_outputs_are_not_is_refused() -> None:
    with pytest.raises(PlanError, match=r"no detection's that is known here: logits FP32\[-1, 1000\]"):
        plan(facts({"logits": (1000,)}), task="detection")


def test_raw_tensors_are_said_clearly() -> None:
    _, findings = plan(facts({"what": (7, 9, 11, 13)}))
    (raw,) = (finding for finding in findings if finding.id == "vision.raw")
    assert raw.severity == "warning"
    assert "served as raw tensors" in raw.message


def test_labels_must_be_as_many_as_classes() -> None:
    with pytest.raises(PlanError, match="20 labels were given, and the network tells 80 classes apart"):
        plan(facts({"output0": (84, 8400)}), labels=20)


def test_another_size_than_the_graph_has_is_refused() -> None:
    with pytest.raises(PlanError, match="takes a width of 640, and 320 was asked for"):
        plan(facts({"output0": (84, 8400)}), preprocess=PreprocessSpec(size=(320, 320)))


def test_a_fixed_batch_is_explained() -> None:
    graph = facts({"logits": (1000,)}, batch="one", batch_note="its batch is fixed to 1 and …")
    found, findings = plan(graph, max_batch_size=8)
    assert found.max_batch_size == found.networks[0].max_batch_size == 1
    (batch,) = (finding for finding in findings if finding.id == "vision.batch")
    assert (batch.severity, "max_batch_size 8 was asked for" in batch.message) == ("warning", True)


def test_pixels_become_what_the_network_was_trained_with() -> None:
    picture = plan(facts({"logits": (1000,)}, size=224))[0].picture
    # (value / 255 - 0.485) / 0.229 of red: 1 / (255 × 0.229) = 0.017124, -0.485 / 0.229 = -2.1179
    assert picture.scale[0] == pytest.approx(0.0171248, abs=1e-6)
    assert picture.offset[0] == pytest.approx(-2.117904, abs=1e-6)
    bytes_ = plan(facts({"logits": (1000,)}, size=224, dtype="UINT8"))[0].picture
    assert bytes_.scale == pytest.approx((1.0,) * 3)
    assert bytes_.offset == (0.0,) * 3


def test_activations_are_not_applied_twice() -> None:
    assert plan(facts({"logits": (1000,)}))[0].answer.activation == "softmax"
    assert plan(facts({"logits": (1000,)}, makers={"logits": "Softmax"}))[0].answer.activation == "none"
    queries: Outputs = {"logits": (300, 80), "pred_boxes": (300, 4)}
    assert plan(facts(queries))[0].answer.activation == "sigmoid"
    softmax = PostprocessSpec(activation="softmax")
    assert plan(facts(queries), labels=79, postprocess=softmax)[0].answer.classes == 80  # one is "nothing"


def test_one_network_cannot_be_ocr() -> None:
    with pytest.raises(PlanError, match="reading text takes three networks"):
        plan(facts({"logits": (1000,)}), task="ocr")


def test_workspace_grows_with_the_batch() -> None:
    graph = facts({"output0": (84, 8400)})
    small, large = (plan(graph, max_batch_size=batch)[0].networks[0] for batch in (1, 8))
    # 1.5 × 7 more pictures of 20 MB and their pixels as floats: 3 × 4 × 640 × 640 × 3
    assert large.workspace_bytes - small.workspace_bytes == pytest.approx(
        1.5 * 7 * (20_000_000 + 14_745_600), abs=8
    )


def test_masks_in_the_size_of_the_picture_are_in_the_account() -> None:
    pixels = 20_000_000
    classes = plan(facts({"out": (21, 80, 80)}), max_picture_pixels=pixels)[0].stages[-1]
    things = plan(facts({"a": (116, 8400), "b": (32, 160, 160)}), max_picture_pixels=pixels)[0].stages[-1]
    boxes = plan(facts({"a": (84, 8400)}), max_picture_pixels=pixels)[0].stages[-1]
    assert classes.scratch_bytes > 5 * pixels
    assert things.scratch_bytes > 13 * pixels
    assert boxes.scratch_bytes < 5 * pixels
    assert classes.shm_bytes > 32 << 20  # answers hold the files


def test_the_plan_says_how_both_kinds_live_side_by_side() -> None:
    both = plan_of(llm_plan(), detector_plan())
    assert "a picture waits for one step of a language model at most: 2048 tokens (qwen-7b)" in explain(both)
    assert "MIG" not in explain(both)  # an L4 has none
    large = both.model_copy(update={"gpu": both.gpu.model_copy(update={"name": "A100-SXM-80GB"})})
    assert "language models on A100-SXM-80GB:4g" in explain(large)
    assert "pictures on A100-SXM-80GB:3g" in explain(large)
    small = both.model_copy(update={"gpu": both.gpu.model_copy(update={"name": "A100-SXM-40GB"})})
    weights = LedgerItem(item="weights", bytes=20 << 30, why="", model="qwen-7b")
    assert "no MIG: A100-SXM-40GB:4g has" in explain(small.model_copy(update={"ledger": (weights,)}))
    assert "side by side" not in explain(plan_of(detector_plan()))


def test_an_mps_share_exists_between_processes_only() -> None:
    network = detector_plan().networks[0].model_copy(update={"runtime": "tensorrt"})
    compiled = detector_plan().model_copy(update={"networks": (network,)})
    one = explain(plan_of(llm_plan(), compiled))
    assert "CUDA priority: the kernels of detector_network go first" in one
    assert "no MPS share: both run in one process" in one
    for plan in (
        plan_of(llm_plan(), compiled, target=Target.LLMAPI),
        plan_of(llm_plan(instances=2), compiled),
    ):
        several = explain(plan)
        assert "nvidia-cuda-mps-control -d" in several
        assert "CUDA priority" not in several  # of streams in one context


def test_fp8_needs_a_gpu_that_has_it(tmp_path: Path) -> None:
    entry = VisionSpec(name="model", model="model.onnx", precision="fp8", calibration=tmp_path)
    source = VisionSource(entry, facts({"logits": (1000,)}))
    found = {}
    for gpu in ("A10", "L4"):
        made = make_plan(
            DeploymentSpec(vision=(entry,)), target=Target.ENGINE, target_reason="asked",
            gpu=find_gpu(gpu).gpu, container=find_container("25.10"), graphs={"model": source},
        )  # fmt: skip
        found[gpu] = [finding.id for finding in made.errors]
    assert found == {"A10": ["vision.fp8"], "L4": []}


def test_what_several_networks_cannot_take_is_refused() -> None:
    with pytest.raises(PlanError, match="runtime and precision cannot be given to ocr"):
        plan_vision(VisionSpec(runtime="tensorrt", precision="fp16"))
