"""A network's outputs for a batch to the pipeline's answers, whichever its task.

``Answers`` has a row a picture; where pictures have different numbers of boxes, rows are filled up and
``count`` says how many are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .boxes import in_picture, kept
from .heads import Candidates, candidates, channels_first
from .masks import class_maps, class_png, instance_png
from .scores import activated, best
from .settings import Settings

Arrays = dict[str, Any]
_NOT_A_NUMBER = b"the network's answer for this picture holds values that are not numbers"


def answers(outputs: Sequence[Any], geometry: Any, errors: Any, settings: Settings) -> Arrays:
    """The answers of a batch.

    Args:
        outputs: of the network, [n, …], in the order in which the plan names them.
        geometry: [n, 6]; errors: [n, 1], what is wrong with a picture, or nothing.

    Returns:
        Name → array [n, …]: those of the task, and ``picture_size`` INT32[n, 2] and ``error`` STRING[n, 1].

    Raises:
        ValueError: shapes that are not the task's.
    """
    outputs, errors = _finite(outputs, errors)
    made = {
        "classification": _classification,
        "detection": _detection,
        "segmentation": _segmentation,
        "embedding": _embedding,
    }[settings.task](outputs, geometry, settings)
    bad = errors[:, 0] != b""
    for name, array in made.items():
        array[bad] = b"" if array.dtype == np.object_ else -1 if name == "class_id" else 0
    size = np.rint(geometry[:, 4:6]).astype(np.int32)
    size[bad] = 0
    return {**made, "picture_size": size, "error": errors}


def _finite(outputs: Sequence[Any], errors: Any) -> tuple[list[Any], Any]:
    """Outputs with 0 for pictures whose values are not numbers, and that told."""
    errors = errors.copy()
    cleaned = []
    for output in outputs:
        if output.dtype.kind == "f" and not np.isfinite(output).all():
            bad = ~np.isfinite(output).reshape(len(output), -1).all(axis=1)
            output = output.copy()
            output[bad] = 0
            errors[bad & (errors[:, 0] == b""), 0] = _NOT_A_NUMBER
        cleaned.append(output)
    return cleaned, errors


def _classification(outputs: Sequence[Any], _: Any, settings: Settings) -> Arrays:
    values = outputs[0]
    scores = activated(values.reshape(len(values), -1), settings.activation)
    ids, top = best(scores, settings.top_k)
    return {"class_id": ids.astype(np.int32), "score": top, "label": _labels(ids, settings)}


def _embedding(outputs: Sequence[Any], _: Any, settings: Settings) -> Arrays:
    values = np.asarray(outputs[0], np.float32).reshape(len(outputs[0]), -1)
    if settings.normalise:
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        values = values / np.where(lengths > 0, lengths, 1)
    return {"embedding": values.copy()}


def _detection(outputs: Sequence[Any], geometry: Any, settings: Settings) -> Arrays:
    found = candidates(outputs, settings)
    return _rows(found, kept(found, geometry, settings), in_picture(found, geometry), settings)


def _segmentation(outputs: Sequence[Any], geometry: Any, settings: Settings) -> Arrays:
    if settings.head:
        return _instances(outputs, geometry, settings)
    maps = class_maps(outputs[0], settings)
    files = np.empty((len(maps), 1), np.object_)
    for i, classes in enumerate(maps):
        files[i, 0] = class_png(classes, geometry[i], settings)
    return {"mask": files}


def _instances(outputs: Sequence[Any], geometry: Any, settings: Settings) -> Arrays:
    found = candidates(outputs, settings)
    picked = kept(found, geometry, settings)
    boxes = in_picture(found, geometry)
    rows = _rows(found, picked, boxes, settings)
    weights = channels_first(outputs[0], settings)[:, 4 + settings.classes :]
    masks = np.full(rows["class_id"].shape, b"", np.object_)
    for picture, own in enumerate(picked):
        for row, i in enumerate(own):
            masks[picture, row] = instance_png(
                outputs[1][picture],
                weights[picture, :, found.number[i]],
                found.corners[i],
                boxes[i],
                settings,
            )
    return {**rows, "mask": masks}


def _rows(found: Candidates, picked: Sequence[Any], corners: Any, settings: Settings) -> Arrays:
    count, most = len(picked), max(map(len, picked), default=0)
    box, score = np.zeros((count, most, 4), np.float32), np.zeros((count, most), np.float32)
    ids = np.full((count, most), -1, np.int32)
    for picture, own in enumerate(picked):
        box[picture, : len(own)], score[picture, : len(own)] = corners[own], found.score[own]
        ids[picture, : len(own)] = found.class_id[own]
    label = _labels(ids, settings)
    label[ids < 0] = b""
    counts = np.array([[len(own)] for own in picked], np.int32).reshape(count, 1)
    return {"box": box, "score": score, "class_id": ids, "label": label, "count": counts}


def _labels(ids: Any, settings: Settings) -> Any:
    names = np.empty(ids.shape, np.object_)
    for place in np.ndindex(ids.shape):
        names[place] = settings.label(int(ids[place]))
    return names
