"""From a graph's outputs to a task: what they can only mean, or the question that is left.

Layouts, with N the batch, A anchors or cells, Q queries, C classes:

    yolov3   several [N, 3 × (5 + C), rows, columns], raw values of each grid
    yolov5   [N, A, 5 + C]: centre, size, objectness, classes; decoded
    yolov8   [N, 4 + C, A] or [N, A, 4 + C]: centre, size, classes; decoded (v8 to v12); for segmentation,
             [N, 32, rows, columns] beside it and 32 more channels
    detr     [N, Q, 4 + C], or [N, Q, 4] and [N, Q, C]: centre and size from 0 to 1
    boxes    [N, Q, 6], or boxes [N, Q, 4], scores [N, Q] and labels [N, Q]: corners; nothing is left to do;
             or rows [m, 7] of one picture: its number, corners, class and score (YOLOv7, end to end)
    tf       detection_boxes, detection_scores and detection_classes of TensorFlow's Object Detection API: the
             same with boxes as top, left, bottom and right from 0 to 1
    ssd      scores [N, A, 1 + C], the first class "nothing", and boxes [N, A, 4]: corners from 0 to 1

Shapes alone tell few of them: a row of 56 values a cell may be 52 classes, or a pose. So a reading is sure
where more than its shapes speaks for it (labels, names, operators, the classes of COCO); others are only
taken when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trtbuild.catalog.vision import TensorRow
from trtbuild.errors import PlanError
from trtbuild.plan.graph import GraphFacts
from trtbuild.spec import Task, VisionSpec

_STRIDES = ((8, 16, 32), (16, 32), (4, 8, 16, 32), (8, 16, 32, 64), (32, 16))
_ANCHORS_A_CELL = 3
_BOX = 4
_MOST_QUERIES = 1000
_MASKS = 32  # channels of a prototype (Ultralytics' segmentation models)
_TASKS = {"detect": Task.DETECTION, "segment": Task.SEGMENTATION, "classify": Task.CLASSIFICATION}
_OTHER_TASKS = ("pose", "obb")
_EMBEDDING_WORDS = ("embed", "feature", "pooled", "pooler", "hidden", "descriptor")
_CLASS_WORDS = ("logit", "prob", "softmax", "class", "score")
_IMAGENET = (1000, 1001)
_COCO = 80
# What follows a box of COCO's pose (1 + 17 × 3) and mask models (80 + 32), and is no number of classes.
_OTHER_CHANNELS = (52, 112)
_MAP_WORDS = ("seg", "mask", "class", "logit", "label")
# Of maps that score no classes: depth, key points, flow, matting, super-resolution, features.
_OTHER_MAPS = (
    "depth",
    "dispar",
    "heat",
    "keypoint",
    "pose",
    "flow",
    "matte",
    "alpha",
    "feat",
    "recon",
    "upscal",
)
_SHORTEST_EMBEDDING = 32  # numbers
# Of vectors that are no scores, however short.
_OTHER_NUMBERS = ("landmark", "box", "coord", "angle", "regress", "quat", "offset", *_OTHER_MAPS)
_COARSEST_MAP = 8  # pixels of the network's picture a point, of segmentation that nobody asked for


@dataclass(frozen=True)
class Reading:
    """What a graph's outputs mean. ``why`` completes "because …"; ``classes`` 0: not told by the shapes;
    ``sure`` False: their shapes fit, and nothing else says so; ``perhaps``: of raw outputs, the tasks of
    such readings."""

    task: Task
    outputs: tuple[str, ...]
    why: str
    head: str = ""
    classes: int = 0
    sure: bool = True
    perhaps: tuple[Task, ...] = ()


def read_outputs(spec: VisionSpec, facts: GraphFacts, *, labels: int, size: tuple[int, int]) -> Reading:
    """What the outputs mean.

    Args:
        labels: how many names of classes were given, 0 for none.
        size: width and height of the network's picture.

    Raises:
        PlanError: they do not fit the task that was asked for, or several tasks fit.
    """
    if spec.task is Task.OCR:
        raise PlanError(
            f"{spec.name}: reading text takes three networks (detection, orientation, recognition), and "
            f"{facts.origin} is one",
            f"give the folder with all three: `pipeline: ocr` and `weights: FOLDER`, or trtbuild add-vision "
            f"{spec.name} FOLDER --task ocr",
        )
    every = tuple(row.name for row in facts.outputs)
    if spec.task is Task.RAW:
        return Reading(Task.RAW, every, "you asked for it")
    named = facts.metadata.get("task", "")  # Ultralytics
    told = spec.task or _TASKS.get(named)
    if named in _OTHER_TASKS and spec.labels is None:
        other = f"its file says that it is for {named!r}, which is not known here"
        if told is None:
            return Reading(Task.RAW, every, other)
        raise PlanError(
            f"{spec.name}: {told.value} was asked for, and {other}",
            "--task raw serves its outputs as they are",
            "--labels FILE, if its file is wrong: what follows each box is then scores of so many classes",
        )
    found = [reading for reading in _readings(spec, facts, labels, size) if told in (None, reading.task)]
    if spec.postprocess.head is not None:
        found = [reading for reading in found if reading.head == spec.postprocess.head]
    if told is None and spec.postprocess.head is None and spec.labels is None:
        fitting, found = found, [reading for reading in found if reading.sure]
        if fitting and not found:
            fits = " or ".join(dict.fromkeys(f"{item.task.value} ({item.why})" for item in fitting))
            perhaps = tuple(dict.fromkeys(item.task for item in fitting))
            why = f"their shapes would fit {fits}, and nothing else says that it is: {_listed(facts)}"
            return Reading(Task.RAW, every, why, perhaps=perhaps)
    tasks = list(dict.fromkeys(reading.task for reading in found))
    listed = _listed(facts)
    if not found and (spec.task is not None or spec.postprocess.head is not None):
        what = spec.postprocess.head or (spec.task.value if spec.task else "")
        raise PlanError(
            f"{spec.name}: its outputs are no {what}'s that is known here: {listed}",
            "leave --task out, to see what they are taken for",
            "--task raw serves them as they are",
        )
    if len(tasks) > 1:
        raise PlanError(
            f"{spec.name}: its outputs could be for {' or '.join(task.value for task in tasks)}: {listed}",
            *(f"--task {task.value}" for task in tasks),
        )
    heads = list(dict.fromkeys(reading.head for reading in found if reading.task is tasks[0]))
    if {"yolov5", "yolov8"} <= set(heads):
        raise PlanError(
            f"{spec.name}: the values behind each of its boxes could be classes, or an objectness and then "
            f"classes: {listed}",
            "--labels FILE: their number tells",
            "in the spec: postprocess: {head: yolov8} without an objectness, {head: yolov5} with one",
            "--task raw, if they are neither",
        )
    says = f"its file says {named!r}, and no such model" if told is not None else "no task"
    return found[0] if found else Reading(Task.RAW, every, f"{says} is known with the outputs {listed}")


def _listed(facts: GraphFacts) -> str:
    return ", ".join(f"{row.name} {row.dtype}{list(row.dims)}" for row in facts.outputs)


def _readings(spec: VisionSpec, facts: GraphFacts, labels: int, size: tuple[int, int]) -> Iterator[Reading]:
    outputs = [row for row in facts.outputs if len(row.dims) > 1 and row.dtype != "STRING"]
    yield from _ready_boxes(outputs, facts)
    if all(_is_float(row) for row in outputs):
        yield from _grids(outputs, size, spec)
        yield from _cells(outputs, facts, size, labels)
        yield from _queries(outputs, facts, size, labels)
        yield from _prior_boxes(outputs, labels)
    yield from _maps(outputs, facts, size, labels, asked=spec.task is Task.SEGMENTATION)
    yield from _vectors(outputs, facts, labels, spec)


def _ready_boxes(outputs: Sequence[TensorRow], facts: GraphFacts) -> Iterator[Reading]:
    why = "it gives boxes, scores and classes"
    if len(outputs) == 1 and _is_rows_of_one_picture(outputs[0]):
        yield Reading(Task.DETECTION, (outputs[0].name,), "it gives a row for each thing it finds", "boxes")
        return
    if len(outputs) == 1 and len(outputs[0].dims) == 3 and outputs[0].dims[-1] == _BOX + 2:
        # Two classes behind a box, as they come out of a Sigmoid, are an RT-DETR's (`_queries`).
        if outputs[0].dims[1] <= _MOST_QUERIES and facts.scored.get(outputs[0].name, 0) < 2:
            yield Reading(Task.DETECTION, (outputs[0].name,), why, "boxes")
        return
    boxes = [row for row in outputs if len(row.dims) == 3 and row.dims[-1] == _BOX and _is_float(row)]
    flat = [row for row in outputs if len(row.dims) == 2 and row.dims[-1] != 1]
    labels = [row for row in flat if row.dtype.startswith(("INT", "UINT")) or _says(row, "label", "class")]
    scores = [row for row in flat if row not in labels and _is_float(row)]
    if len(boxes) == len(scores) == len(labels) == 1:
        names = (boxes[0].name, scores[0].name, labels[0].name)
        yield Reading(Task.DETECTION, names, why, "tf" if _says(boxes[0], "detection_boxes") else "boxes")


def _is_rows_of_one_picture(row: TensorRow) -> bool:
    """[m, 7] in the file: as an output without a batch dimension it has one of 1 here."""
    return _is_float(row) and len(row.dims) == 3 and (row.dims[0], row.dims[-1]) == (1, _BOX + 3)


def _grids(outputs: Sequence[TensorRow], size: tuple[int, int], spec: VisionSpec) -> Iterator[Reading]:
    width, height = size
    maps = [row for row in outputs if len(row.dims) == 4 and row.dims[2] > 0]
    if not 2 <= len(maps) == len(outputs) <= 4 or len({row.dims[1] for row in maps}) > 1:
        return
    heads = len(maps)
    each = len(spec.postprocess.anchors or ()) // (2 * heads) or _ANCHORS_A_CELL
    channels = maps[0].dims[1]
    strides = [width / row.dims[3] for row in maps]
    if channels % each or channels // each <= _BOX + 1 or len(set(strides)) != heads:
        return
    if any(row.dims[2] != round(height / stride) for row, stride in zip(maps, strides, strict=True)):
        return
    finest = sorted(maps, key=lambda row: -row.dims[3])
    why = f"it gives {heads} grids of {each} boxes a cell"
    yield Reading(
        Task.DETECTION, tuple(row.name for row in finest), why, "yolov3", channels // each - _BOX - 1
    )


def _cells(
    outputs: Sequence[TensorRow], facts: GraphFacts, size: tuple[int, int], labels: int
) -> Iterator[Reading]:
    width, height = size
    flat = [row for row in outputs if len(row.dims) == 3]
    masks = [row for row in outputs if len(row.dims) == 4 and row.dims[1] == _MASKS]
    if len(flat) != 1 or len(outputs) != len(flat) + len(masks) or len(masks) > 1:
        return
    _, first, second = flat[0].dims
    scored = facts.scored.get(flat[0].name, 0)
    for strides in _STRIDES:
        cells = sum(-(-height // stride) * -(-width // stride) for stride in strides)
        if first == _ANCHORS_A_CELL * cells and second > _BOX + 1 and not masks:
            why = f"it gives {first} boxes, three a cell"
            classes = second - _BOX - 1
            sure = classes not in _OTHER_CHANNELS or classes == labels
            yield Reading(Task.DETECTION, (flat[0].name,), why, "yolov5", classes, sure)
            return
        channels = first if second == cells else second if first == cells else 0
        extra = _MASKS if masks else 0
        if channels > _BOX + extra:
            why = f"it gives {cells} boxes, one a cell" + (" with a mask each" if masks else "")
            names = (flat[0].name, *(row.name for row in masks))
            task = Task.SEGMENTATION if masks else Task.DETECTION
            behind = channels - _BOX - extra
            rows = second == channels and not masks and behind > 1
            known = labels or _COCO
            # One box a cell in rows is what YOLOX and YOLOv6 give, with an objectness, and YOLOv8 transposed.
            if rows and behind != known and (behind - 1 == known or not labels):
                yield Reading(task, names, why + ", with an objectness", "yolov5", behind - 1)
            if not rows or behind - 1 != known:
                sure = rows or bool(masks) or _are_classes(behind, labels, scored)
                why += f", and {behind} values behind each"
                yield Reading(task, names, why, "yolov8", behind, sure)
            return


def _are_classes(count: int, labels: int, scored: int) -> bool:
    """Whether so many values behind a box are scores of classes, and not key points, angles or mask weights:
    as many as there are labels, one, COCO's, or all that a Sigmoid gave."""
    return count in (labels, 1, _COCO, scored)


def _queries(
    outputs: Sequence[TensorRow], facts: GraphFacts, size: tuple[int, int], labels: int
) -> Iterator[Reading]:
    flat = [row for row in outputs if len(row.dims) == 3 and 0 < row.dims[1] <= _MOST_QUERIES]
    if len(flat) != len(outputs) or (len(flat) == 1 and _is_rows_of_one_picture(flat[0])):
        return
    scored = facts.scored.get(flat[0].name, 0) if flat else 0
    alone = len(flat) == 1 and flat[0].dims[-1] > _BOX and (flat[0].dims[-1] != _BOX + 2 or scored == 2)
    other = alone and (_covers(flat[0].dims[1:], size) or _says(flat[0], *_EMBEDDING_WORDS))
    if alone and not other and next(_cells(outputs, facts, size, 0), None) is None:
        why = f"it gives {flat[0].dims[1]} boxes with their classes"
        classes = flat[0].dims[-1] - _BOX
        sure = classes > 1 and _are_classes(classes, labels, scored)
        yield Reading(Task.DETECTION, (flat[0].name,), why, "detr", classes, sure)
    boxes = [row for row in flat if row.dims[-1] == _BOX and not _says(row, "logit", "score", "class")]
    logits = [row for row in flat if row not in boxes]
    if len(boxes) == len(logits) == 1 and boxes[0].dims[1] == logits[0].dims[1]:
        why = f"it gives {boxes[0].dims[1]} boxes, and classes for each"
        yield Reading(Task.DETECTION, (boxes[0].name, logits[0].name), why, "detr", logits[0].dims[-1])


def _prior_boxes(outputs: Sequence[TensorRow], labels: int) -> Iterator[Reading]:
    """Decoded boxes of an SSD before non-maximum suppression; more than a set of queries ever is."""
    flat = [row for row in outputs if len(row.dims) == 3 and row.dims[1] > _MOST_QUERIES]
    boxes = [row for row in flat if row.dims[-1] == _BOX and not _says(row, *_CLASS_WORDS)]
    scores = [row for row in flat if row not in boxes and row.dims[-1] > 1]
    if len(outputs) == 2 and len(boxes) == len(scores) == 1 and boxes[0].dims[1] == scores[0].dims[1]:
        count, own = scores[0].dims[1:]
        why = (
            f'it gives {count} boxes, as corners from 0 to 1, and {own} classes for each, the first "nothing"'
        )
        classes = own if labels == own else own - 1  # some lists name the first too
        yield Reading(
            Task.DETECTION,
            (boxes[0].name, scores[0].name),
            why,
            "ssd",
            classes,
            sure=labels in (own, own - 1),
        )


def _maps(
    outputs: Sequence[TensorRow], facts: GraphFacts, size: tuple[int, int], labels: int, *, asked: bool
) -> Iterator[Reading]:
    """Class maps: of several alike, such as torchvision's ``out`` and ``aux``, the first."""
    if not outputs or len({row.dims for row in outputs}) > 1:
        return
    row = outputs[0]
    whole = row.dtype.startswith(("INT", "UINT"))
    if len(row.dims) == 3 and whole:
        yield Reading(Task.SEGMENTATION, (row.name,), "it gives a class a point")
    if len(row.dims) != 4 or min(row.dims[1:]) < 1:
        return
    last = facts.layout == "nhwc" and _covers(row.dims[1:3], size) and not _covers(row.dims[2:], size)
    classes, rows = (row.dims[3], row.dims[1]) if last else (row.dims[1], row.dims[2])
    coarsest = 32 if asked else _COARSEST_MAP
    if rows < 2 or rows * coarsest < size[1] or (not asked and (rows > size[1] or _says(row, *_OTHER_MAPS))):
        return
    if classes == 1 and whole:
        yield Reading(Task.SEGMENTATION, (row.name,), "it gives a class a point")
        return
    made = facts.makers.get(row.name, "")
    # Maps of one class are masks or depths; as many channels as the picture's are most often a picture.
    told = _says(row, *_MAP_WORDS) or made in ("Softmax", "Sigmoid", "LogSoftmax") or row.dtype == "BOOL"
    whole_picture = rows == size[1] and classes not in (1, facts.channels)
    sure = told or whole_picture or labels == max(2, classes)
    why = f"it scores {classes} classes a point" if classes > 1 else "it gives one number a point"
    yield Reading(Task.SEGMENTATION, (row.name,), why, "", max(2, classes), sure)


def _covers(dims: Sequence[int], size: tuple[int, int]) -> bool:
    """Whether rows and columns of a map are those of the picture, or a whole part of them."""
    rows, columns = dims
    return rows > 0 and columns > 0 and size[1] % rows == 0 and size[1] * columns == size[0] * rows


def _vectors(
    outputs: Sequence[TensorRow], facts: GraphFacts, labels: int, spec: VisionSpec
) -> Iterator[Reading]:
    vectors = [row for row in outputs if _length(row) > 1]
    if len(vectors) != len(outputs):  # hidden states beside them, as transformers export theirs
        named = [row for row in vectors if _says(row, *_EMBEDDING_WORDS)]
        vectors = named[:1] if len(named) == 1 or spec.task is Task.EMBEDDING else []
    if not vectors:
        return
    for task, words in ((Task.CLASSIFICATION, _CLASS_WORDS), (Task.EMBEDDING, _EMBEDDING_WORDS)):
        row = next((row for row in vectors if _says(row, *words)), vectors[0])
        length = _length(row)
        if task is spec.task:
            yield Reading(
                task, (row.name,), "you asked for it", "", length if task is Task.CLASSIFICATION else 0
            )
            return
    row = next((row for row in vectors if _length(row) in (labels, *_IMAGENET)), vectors[0])
    length, maker = _length(row), facts.makers.get(row.name, "")
    several = len({_length(row) for row in vectors}) > 1 and length != labels
    if several and not any(_says(row, *_CLASS_WORDS, *_EMBEDDING_WORDS) for row in vectors):
        why = f"{row.name} gives {length} numbers, and the others are left out"
        yield Reading(Task.CLASSIFICATION, (row.name,), why, "", length, sure=False)
        return
    is_named = _says(row, *_EMBEDDING_WORDS) or maker == "LpNormalization"
    if (
        length == labels
        or length in _IMAGENET
        or maker in ("Softmax", "Sigmoid", "LogSoftmax")
        or (_says(row, *_CLASS_WORDS) and not is_named)
    ):
        why = f"it gives {length} scores" + (", as many as there are labels" if length == labels else "")
        yield Reading(Task.CLASSIFICATION, (row.name,), why, "", length)
    elif is_named:
        yield Reading(Task.EMBEDDING, (row.name,), f"it gives a vector of {length}")
    elif len(outputs) == 1 and length < _SHORTEST_EMBEDDING and not _says(row, *_OTHER_NUMBERS):
        why = f"it gives {length} numbers that are not normalised, too few for an embedding"
        yield Reading(Task.CLASSIFICATION, (row.name,), why, "", length)
    else:
        yield Reading(Task.CLASSIFICATION, (row.name,), f"it gives {length} numbers", "", length)
        yield Reading(Task.EMBEDDING, (row.name,), f"it gives {length} numbers")


def _length(row: TensorRow) -> int:
    """Of a vector [N, C], [N, C, 1, 1] or [N, 1, C]; 0: something else."""
    long = [dim for dim in row.dims[1:] if dim != 1]
    return long[0] if len(long) == 1 and long[0] > 0 and _is_float(row) else 0


def _is_float(row: TensorRow) -> bool:
    return row.dtype.startswith("FP")


def _says(row: TensorRow, *words: str) -> bool:
    return any(word in row.name.lower() for word in words)
