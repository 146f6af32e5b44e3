"""A network's outputs to answers: numbers made by hand for every head and task."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from trtbuild_templates.vision_postprocess.answers import answers
from trtbuild_templates.vision_postprocess.boxes import strongest
from trtbuild_templates.vision_postprocess.masks import class_maps
from trtbuild_templates.vision_postprocess.settings import Settings

SAME = (1.0, 1.0, 0.0, 0.0, 64.0, 64.0)  # the picture is the network's input


def made(**changes: Any) -> Settings:
    values: dict[str, Any] = {
        "task": "detection",
        "head": "yolov8",
        "classes": 2,
        "activation": "none",
        "width": 64,
        "height": 64,
        "top_k": 2,
        "score_threshold": 0.25,
        "iou_threshold": 0.45,
        "max_detections": 100,
        "normalise": True,
        "labels": (b"cat", b"dog"),
    }
    return Settings(**{**values, **changes})


def answered(outputs: list[Any], options: Settings, *geometry: tuple[float, ...]) -> dict[str, Any]:
    rows = np.array(geometry or [SAME] * len(outputs[0]), np.float32)
    errors = np.full((len(rows), 1), b"", np.object_)
    return answers([np.asarray(output, np.float32) for output in outputs], rows, errors, options)


def logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


def test_softmax_and_labels() -> None:
    found = answered([[[0.0, np.log(3.0)], [0.0, 0.0]]], made(task="classification", activation="softmax"))
    assert found["class_id"].tolist() == [[1, 0], [0, 1]]  # of equal ones the lower first
    np.testing.assert_allclose(found["score"], [[0.75, 0.25], [0.5, 0.5]], rtol=1e-6)
    assert found["label"].tolist() == [[b"dog", b"cat"], [b"cat", b"dog"]]


def test_a_class_without_a_name_is_its_number() -> None:
    found = answered([[[0.1, 0.2, 0.7]]], made(task="classification", classes=3, labels=()))
    assert found["label"].tolist() == [[b"2", b"1"]]


BOX = [10, 20, 30, 40]  # corners of a thing: centre 20, 30, size 20 × 20
CENTRE = [20, 30, 20, 20]


def one_thing(head: str) -> list[Any]:
    """The outputs of each head for one dog of 0.8 at BOX, in a network of 64 × 64."""
    if head == "yolov8":
        anchors = np.zeros((1, 6, 84))  # 8² + 4² + 2² cells
        anchors[0, :, 5] = [*CENTRE, 0.1, 0.8]
        return [anchors]
    if head == "yolov5":
        cells = np.zeros((1, 252, 7))
        cells[0, 7] = [*CENTRE, 0.9, 0.2, 0.8 / 0.9]
        return [cells]
    if head == "yolov3":  # one grid of 8 × 8 cells of 8 pixels: column 2, row 3; anchors of 10 × 10
        grid = np.full((1, 3, 7, 8, 8), -20.0)
        x, y = 20 / 8 - 2, 30 / 8 - 3
        grid[0, 1, :, 3, 2] = [logit(x), logit(y), np.log(2), np.log(2), 20, -20, logit(0.8)]
        return [grid.reshape(1, 21, 8, 8), np.full((1, 21, 4, 4), -20.0)]
    if head == "detr":
        queries = np.zeros((1, 5, 6))
        queries[0, 3] = [20 / 64, 30 / 64, 20 / 64, 20 / 64, 0.1, 0.8]
        return [queries]
    boxes = np.zeros((1, 5, 6))
    boxes[0, 3] = [*BOX, 0.8, 1]
    return [boxes]


@pytest.mark.parametrize("head", ["yolov3", "yolov5", "yolov8", "detr", "boxes"])
def test_each_head_finds_the_thing_where_it_is(head: str) -> None:
    options = made(head=head, anchors=(10.0,) * 12 if head == "yolov3" else ())
    found = answered(one_thing(head), options)
    assert found["count"].tolist() == [[1]]
    np.testing.assert_allclose(found["box"][0, 0], BOX, atol=1e-3)
    assert found["score"][0, 0] == pytest.approx(0.8, abs=1e-4)
    assert (found["class_id"][0, 0], found["label"][0, 0]) == (1, b"dog")


def test_outputs_apart_and_the_other_way_round() -> None:
    whole = one_thing("yolov8")[0]
    turned = answered([whole.transpose(0, 2, 1)], made())
    np.testing.assert_allclose(turned["box"][0, 0], BOX)
    (queries,) = one_thing("detr")
    scores = np.full((1, 5, 2), -20.0)
    scores[0, 3, 1] = logit(0.8)
    apart = answered([queries[..., :4], scores], made(head="detr", activation="sigmoid"))
    assert apart["score"][0].tolist() == [pytest.approx(0.8, abs=1e-4)]
    softmax = np.zeros((1, 5, 3))  # the third is "nothing"
    softmax[..., 2] = 20
    softmax[0, 3] = [0, 20, 0]
    apart = answered([queries[..., :4], softmax], made(head="detr", activation="softmax"))
    assert (apart["count"].tolist(), apart["label"][0, 0]) == ([[1]], b"dog")
    boxes = [np.array([[BOX, [0, 0, 1, 1]]]), np.array([[0.8, 0.1]]), np.array([[1, 0]])]
    assert answered(boxes, made(head="boxes"))["label"].tolist() == [[b"dog"]]
    rows = np.array([[[0, *BOX, 1, 0.8], [0, 0, 0, 1, 1, 0, 0.1]]])  # of picture 0: corners, class, score
    found = answered([rows], made(head="boxes"))
    assert (found["box"][0].tolist(), found["label"].tolist()) == ([BOX], [[b"dog"]])
    assert found["score"][0, 0] == pytest.approx(0.8)


def test_boxes_are_in_the_upright_pictures_coordinates() -> None:
    # a picture of 128 × 64, letterboxed: scale 0.5, 16 rows of padding above
    found = answered(one_thing("yolov8"), made(), (0.5, 0.5, 0.0, 16.0, 128.0, 64.0))
    assert found["box"][0, 0].tolist() == [20, 8, 60, 48]
    assert found["picture_size"].tolist() == [[128, 64]]


def test_boxes_are_cut_at_the_edge_and_dropped_outside() -> None:
    boxes = [[[-5, -5, 10, 10, 0.9, 0], [-9, -9, -1, -1, 0.9, 1], [60, 60, 70, 70, 0.8, 1]]]
    found = answered([boxes], made(head="boxes"))
    assert found["box"][0].tolist() == [[0, 0, 10, 10], [60, 60, 64, 64]]


def test_rows_are_filled_up_where_pictures_differ() -> None:
    boxes = [[[0, 0, 9, 9, 0.9, 0], [20, 20, 30, 30, 0.5, 1]], [[0, 0, 9, 9, 0.1, 0], [0, 0, 9, 9, 0.1, 0]]]
    found = answered([boxes], made(head="boxes"))
    assert found["count"].tolist() == [[2], [0]]
    assert found["class_id"].tolist() == [[0, 1], [-1, -1]]
    assert found["label"][1].tolist() == [b"", b""]


def test_not_a_number_fails_one_picture_alone() -> None:
    scores = [[0.9, 0.1], [np.nan, 0.5], [0.2, 0.8]]
    found = answered([scores], made(task="classification"))
    assert [bool(error) for error in found["error"][:, 0]] == [False, True, False]
    assert b"not numbers" in found["error"][1, 0]
    assert found["class_id"][:, 0].tolist() == [0, -1, 1]


def plain_suppression(corners: Any, classes: Any, threshold: float) -> list[int]:
    kept: list[int] = []
    for i, (x1, y1, x2, y2) in enumerate(corners):
        clear = True
        for j in kept:
            a, b, c, d = corners[j]
            shared = max(0.0, min(x2, c) - max(x1, a)) * max(0.0, min(y2, d) - max(y1, b))
            union = (x2 - x1) * (y2 - y1) + (c - a) * (d - b) - shared
            clear = clear and not (classes[i] == classes[j] and shared > threshold * union)
        if clear:
            kept.append(i)
    return kept


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 30), st.integers(1, 30),
                       st.integers(0, 2)), max_size=30)
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_suppression_is_the_plain_one(rows: list[tuple[int, ...]]) -> None:
    corners = np.array([[x, y, x + w, y + h] for x, y, w, h, _ in rows], np.float32).reshape(-1, 4)
    classes = np.array([row[4] for row in rows])
    found = strongest(corners, classes, made())
    assert found.tolist() == plain_suppression(corners.tolist(), classes.tolist(), 0.45)


def test_masks_have_the_pictures_size() -> None:
    scores = np.zeros((1, 2, 4, 4))
    scores[0, 1, :, 2:] = 1  # the right half is a dog
    found = answered([scores], made(task="segmentation", head=""), (0.5, 0.5, 0.0, 16.0, 128.0, 64.0))
    mask = np.asarray(Image.open(io.BytesIO(found["mask"][0, 0])))
    assert mask.shape == (64, 128)
    assert (mask[:, :64] == 0).all()
    assert (mask[:, 64:] == 1).all()


def test_shares_from_the_top_left_become_pixels() -> None:
    """TensorFlow's boxes: top, left, bottom, right."""
    outputs = [[[[20 / 64, 10 / 64, 40 / 64, 30 / 64]]], [[0.8]], [[1.0]]]
    found = answered(outputs, made(head="tf", classes=0))
    np.testing.assert_allclose(found["box"][0, 0], BOX, rtol=1e-5)
    assert (found["class_id"][0, 0], found["label"][0, 0]) == (1, b"dog")


def test_class_maps_in_every_layout() -> None:
    classes = np.zeros((1, 4, 8), np.int64)  # a network of 128 × 64
    classes[0, 1:3, 2:5] = 2
    scores = np.eye(3)[classes]  # rows, columns, classes
    options = made(task="segmentation", head="", classes=3, width=128, height=64)
    for output in (classes, classes[:, None], scores, scores.transpose(0, 3, 1, 2)):
        assert class_maps(output, options).tolist() == classes.tolist()


def test_what_a_crop_does_not_see_is_void() -> None:
    # a picture of 128 × 64 of which the middle 64 × 64 were seen
    found = answered([np.ones((1, 1, 4, 4))], made(task="segmentation", head=""), (1, 1, -32, 0, 128, 64))
    mask = np.asarray(Image.open(io.BytesIO(found["mask"][0, 0])))
    assert (mask[:, 32:96] == 1).all()
    assert (mask[:, :32] == 255).all()
    assert (mask[:, 96:] == 255).all()


def test_each_thing_has_its_mask() -> None:
    boxes = np.zeros((1, 4 + 2 + 32, 84))
    boxes[0, :6, 5], boxes[0, 6, 5] = [*CENTRE, 0.1, 0.8], 1
    prototypes = np.zeros((1, 32, 16, 16))
    prototypes[0, 0] = -1
    prototypes[0, 0, :, :5] = 1  # left of x = 20 in pixels of the network
    found = answered([boxes, prototypes], made(task="segmentation", head="yolov8"))
    mask = np.asarray(Image.open(io.BytesIO(found["mask"][0, 0])))
    assert mask.shape == (20, 20)
    assert (mask[:, :8] == 255).all()
    assert (mask[:, 12:] == 0).all()


def test_embeddings_have_length_1() -> None:
    found = answered([[[3.0, 4.0], [0.0, 0.0]]], made(task="embedding"))
    np.testing.assert_allclose(found["embedding"], [[0.6, 0.8], [0, 0]], rtol=1e-6)
    plain = answered([[[3.0, 4.0]]], made(task="embedding", normalise=False))
    assert plain["embedding"].tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize(("classes", "number"), [(2, 1), (3, 2)])
def test_an_ssds_first_class_is_nothing(classes: int, number: int) -> None:
    boxes = np.array([[[0.25, 0.5, 0.75, 1.0], [0.25, 0.5, 0.75, 0.98], [0, 0, 0.1, 0.1]]])
    scores = np.array([[[0.1, 0.0, 0.9], [0.2, 0.0, 0.8], [1.0, 0.0, 0.0]]])
    found = answered([boxes, scores], made(head="ssd", classes=classes))
    assert found["count"].tolist() == [[1]]  # the second covers the first, and the third is nothing
    assert found["class_id"].tolist() == [[number]]
    assert found["box"][0, 0].tolist() == [0.25 * 64, 0.5 * 64, 0.75 * 64, 64.0]
