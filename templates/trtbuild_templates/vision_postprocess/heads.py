"""What a detector's outputs mean: boxes in pixels of the network's picture, scores and classes, for a batch.

Layouts are those of trtbuild's plan: yolov3, yolov5, yolov8, detr, boxes, tf, ssd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .scores import activated, sigmoid
from .settings import Settings

_BOX = 4


@dataclass(frozen=True)
class Candidates:
    """Boxes above the threshold of all pictures of a batch, in no order.

    ``picture`` and ``number`` [m] say whose they are and which of the network's; ``corners`` [m, 4] are
    left, top, right and bottom; ``overlap`` whether several may lie on one thing.
    """

    picture: Any
    number: Any
    corners: Any
    score: Any
    class_id: Any
    overlap: bool


def candidates(outputs: Sequence[Any], settings: Settings) -> Candidates:
    """Reads a batch's outputs, in the order in which the plan names them.

    Raises:
        ValueError: their shapes are not those of the head.
    """
    head: Callable[[Sequence[Any], Settings], Candidates] = {
        "yolov3": _yolov3,
        "yolov5": _yolov5,
        "yolov8": _yolov8,
        "detr": _detr,
        "boxes": _boxes,
        "tf": _tf,
        "ssd": _ssd,
    }[settings.head]
    return head(outputs, settings)


def _yolov3(outputs: Sequence[Any], settings: Settings) -> Candidates:
    """Raw grids, the finest first (Redmon and Farhadi 2018, section 2.1)."""
    anchors = np.asarray(settings.anchors, np.float32).reshape(len(outputs), -1, 2)
    parts, first = [], 0
    for grid, sizes in zip(outputs, anchors, strict=True):
        count, _, rows, columns = grid.shape
        values = grid.reshape(count, len(sizes), -1, rows, columns)
        ids = values[:, :, _BOX + 1 :].argmax(axis=2)
        top = np.take_along_axis(values[:, :, _BOX + 1 :], ids[:, :, None], axis=2)[:, :, 0]
        scores = sigmoid(values[:, :, _BOX]) * sigmoid(top)
        p, a, y, x = np.nonzero(scores >= settings.score_threshold)
        raw = np.asarray(values[p, a, :_BOX, y, x], np.float32)
        stride = np.array([settings.width / columns, settings.height / rows], np.float32)
        centre = (sigmoid(raw[:, :2]) + np.stack([x, y], axis=1)) * stride
        size = np.exp(raw[:, 2:]) * sizes[a]
        number = first + (a * rows + y) * columns + x
        parts.append((p, number, _corners(np.hstack([centre, size])), scores[p, a, y, x], ids[p, a, y, x]))
        first += len(sizes) * rows * columns
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
    picture, number, corners, score, class_id = joined
    return Candidates(picture, number, corners, score, class_id, overlap=True)


def _yolov5(outputs: Sequence[Any], settings: Settings) -> Candidates:
    """[n, anchors, 5 + classes]."""
    (values,) = outputs
    likely = np.nonzero(values[..., _BOX] >= settings.score_threshold)  # no score is above its objectness
    rows = np.asarray(values[likely], np.float32)
    ids = rows[:, _BOX + 1 :].argmax(axis=1) if len(rows) else np.zeros(0, np.int64)
    scores = rows[:, _BOX] * rows[np.arange(len(rows)), _BOX + 1 + ids]
    kept = scores >= settings.score_threshold
    corners = _corners(rows[kept, :_BOX])
    return Candidates(likely[0][kept], likely[1][kept], corners, scores[kept], ids[kept], overlap=True)


def _yolov8(outputs: Sequence[Any], settings: Settings) -> Candidates:
    """[n, 4 + classes (+ masks), anchors], or with the last two axes the other way round."""
    values = channels_first(outputs[0], settings)
    scores = values[:, _BOX : _BOX + settings.classes]
    top = scores.max(axis=1)
    p, a = np.nonzero(top >= settings.score_threshold)
    ids = scores[p, :, a].argmax(axis=1) if len(p) else np.zeros(0, np.int64)
    boxes = np.asarray(values[p, :_BOX, a], np.float32).reshape(-1, _BOX)
    return Candidates(p, a, _corners(boxes), np.asarray(top[p, a], np.float32), ids, overlap=True)


def channels_first(values: Any, settings: Settings) -> Any:
    """A yolov8 output as [n, channels, anchors]."""
    first, second = values.shape[1:]
    return (
        values if first - _BOX - settings.classes in (0, 32) and first < second else values.transpose(0, 2, 1)
    )


def _detr(outputs: Sequence[Any], settings: Settings) -> Candidates:
    """[n, queries, 4 + classes], or boxes and scores apart; sizes are shares of the picture."""
    if len(outputs) == 1:
        boxes, scores = outputs[0][..., :_BOX], outputs[0][..., _BOX:]
    else:
        boxes, scores = outputs
    scores = activated(scores, settings.activation)
    if settings.activation == "softmax":
        scores = scores[..., :-1]  # the last class is "nothing" (Carion et al. 2020)
    ids, top = scores.argmax(axis=-1), scores.max(axis=-1)
    p, q = np.nonzero(top >= settings.score_threshold)
    size = np.array([settings.width, settings.height] * 2, np.float32)
    corners = _corners(np.asarray(boxes[p, q], np.float32).reshape(-1, _BOX) * size)
    return Candidates(p, q, corners, np.asarray(top[p, q], np.float32), ids[p, q], overlap=False)


def _boxes(outputs: Sequence[Any], settings: Settings) -> Candidates:
    """[n, boxes, 6], or boxes [n, boxes, 4], scores and classes [n, boxes]; corners in pixels.

    Rows of 7, of one picture, are its number, corners, class and score (YOLOv7, end to end).
    """
    if len(outputs) == 1 and outputs[0].shape[-1] == _BOX + 3:
        corners, ids, scores = outputs[0][..., 1:5], outputs[0][..., 5], outputs[0][..., 6]
    elif len(outputs) == 1:
        corners, scores, ids = outputs[0][..., :_BOX], outputs[0][..., _BOX], outputs[0][..., _BOX + 1]
    else:
        corners, scores, ids = outputs
    p, q = np.nonzero(scores >= settings.score_threshold)
    kept = np.asarray(corners[p, q], np.float32).reshape(-1, _BOX)
    return Candidates(
        p, q, kept, np.asarray(scores[p, q], np.float32), ids[p, q].astype(np.int64), overlap=False
    )


def _tf(outputs: Sequence[Any], settings: Settings) -> Candidates:
    """Boxes [n, boxes, 4] as top, left, bottom and right from 0 to 1, scores and classes [n, boxes]."""
    corners, scores, ids = outputs
    size = np.array([settings.width, settings.height] * 2, np.float32)
    return _boxes([corners[..., [1, 0, 3, 2]] * size, scores, ids], settings)


def _ssd(outputs: Sequence[Any], settings: Settings) -> Candidates:
    """Boxes [n, boxes, 4] as corners from 0 to 1, scores [n, boxes, 1 + classes]; the first is "nothing"."""
    corners, scores = outputs
    scores = activated(scores, settings.activation)
    things = scores[..., 1:]
    named = settings.classes - things.shape[-1]  # 1: the labels name the first too
    top = things.max(axis=-1)
    p, a = np.nonzero(top >= settings.score_threshold)
    ids = things[p, a].argmax(axis=-1) + named if len(p) else np.zeros(0, np.int64)
    size = np.array([settings.width, settings.height] * 2, np.float32)
    kept = np.asarray(corners[p, a], np.float32).reshape(-1, _BOX) * size
    return Candidates(p, a, kept, top[p, a], ids, overlap=True)


def _corners(boxes: Any) -> Any:
    """Left, top, right, bottom of [m, 4] centres and sizes."""
    half = boxes[:, 2:] / 2
    return np.hstack([boxes[:, :2] - half, boxes[:, :2] + half])
