"""Vision pipelines of the plan: the catalogue's rows or a model file, with what the user changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trtbuild.catalog.vision import NetworkRow, PipelineRow, TensorRow, pipeline
from trtbuild.errors import PlanError
from trtbuild.plan import constants
from trtbuild.plan.graph import GraphFacts
from trtbuild.plan.model import AnswerPlan, Finding, NetworkPlan, PicturePlan, StagePlan, VisionPlan
from trtbuild.plan.vision_findings import findings
from trtbuild.plan.vision_picture import picture_size, plan_picture
from trtbuild.plan.vision_task import Reading, read_outputs
from trtbuild.spec import Task, VisionSpec

PIXELS = "pixels"  # the network's one input, as it is served

_MIB = 1 << 20
_BYTES = {"FP64": 8, "INT64": 8, "UINT64": 8, "FP16": 2, "BF16": 2, "INT16": 2, "UINT16": 2, "INT8": 1,
          "UINT8": 1, "BOOL": 1}  # fmt: skip
_DETR_CLASSES = 92
_OF_ONE_NETWORK = ("runtime", "precision", "calibration", "labels", "postprocess")
_ANSWER_ROWS = 1000  # taken for a free dimension of an output


@dataclass(frozen=True)
class VisionSource:
    """A model file, as it was read.

    Attributes:
        spec: with the catalogue's settings where the user gave none.
        facts: of its graph.
        labels: how many names of classes there are; 0: none.
    """

    spec: VisionSpec
    facts: GraphFacts
    labels: int = 0


def plan_vision(spec: VisionSpec, source: VisionSource | None = None) -> tuple[VisionPlan, list[Finding]]:
    """The numbers of one vision pipeline, and what was assumed for it.

    Args:
        source: of a single network; a pipeline of several is the catalogue's.

    Raises:
        CatalogError: an unknown pipeline.
        PlanError: outputs, labels and settings that do not go together.
    """
    if source is None:
        return _chain(spec, pipeline(spec.pipeline)), []
    return _single(source)


def _chain(spec: VisionSpec, row: PipelineRow) -> VisionPlan:
    given = [key for key in _OF_ONE_NETWORK if getattr(spec, key) != VisionSpec.model_fields[key].default]
    given += [  # by value: a spec read back from a repository names every field
        f"preprocess.{key}"
        for key, value in sorted(spec.preprocess)
        if value is not None and key != "instances"
    ]
    if given:
        raise PlanError(
            f"{spec.name}: {' and '.join(given)} cannot be given to {spec.pipeline}, a pipeline of "
            f"{len(row.networks)} networks",
            f"leave {'them' if len(given) > 1 else 'it'} out",
        )
    networks = tuple(_network(network, spec) for network in row.networks)
    pixels = spec.max_picture_pixels or row.front.max_picture_pixels
    front = StagePlan(
        role="front",
        model=spec.name,
        instances=spec.preprocess.instances or row.front.instances,
        max_batch_size=0,
        host_bytes=row.front.host_bytes,
        scratch_bytes=row.front.decode_bytes_per_pixel * pixels,
        shm_bytes=row.front.shm_bytes,
    )
    return VisionPlan(
        name=spec.name,
        pipeline=spec.pipeline,
        task=Task(row.task),
        weights_path=str(spec.weights) if spec.weights else None,
        stages=(front,),
        max_batch_size=max(network.max_batch_size for network in networks),
        max_picture_pixels=pixels,
        networks=networks,
    )


def _delay_us(spec: VisionSpec, planned_us: int) -> int:
    return planned_us if spec.max_queue_delay_us is None else spec.max_queue_delay_us


def _network(row: NetworkRow, spec: VisionSpec) -> NetworkPlan:
    batch = min(row.max_batch_size, spec.max_batch_size or row.max_batch_size)
    return NetworkPlan(
        role=row.role,
        model=f"{spec.name}_{row.role}",
        instances=spec.instances or row.instances,
        max_batch_size=batch,
        preferred_batch_sizes=tuple(size for size in row.preferred_batch_sizes if size <= batch),
        max_queue_delay_us=_delay_us(spec, row.max_queue_delay_us),
        weights_bytes=row.bytes,
        workspace_bytes=row.workspace.at_batch(batch),
        inputs=row.inputs,
        outputs=row.outputs,
    )


def _single(source: VisionSource) -> tuple[VisionPlan, list[Finding]]:
    spec, facts = source.spec, source.facts
    size = picture_size(spec, facts)
    reading = read_outputs(spec, facts, labels=source.labels, size=size)
    if spec.task is None:  # its outputs told it: a free size is then the task's
        size = picture_size(spec.model_copy(update={"task": reading.task}), facts)
    classes = _classes(spec, reading, source.labels)
    picture, assumed = plan_picture(spec, facts, reading, size)
    batch = _batch_size(spec, facts)
    network = _single_network(spec, facts, picture, batch)
    pixels = spec.max_picture_pixels or constants.MAX_PICTURE_PIXELS
    plan = VisionPlan(
        name=spec.name,
        pipeline="" if spec.model is not None else spec.pipeline,
        task=reading.task,
        weights_path=str(spec.model) if spec.model is not None else None,
        stages=_stages(spec, reading, network, batch, pixels),
        max_batch_size=batch,
        max_picture_pixels=pixels,
        networks=(network,),
        picture=picture,
        answer=_answer(spec, facts, reading, classes, source.labels),
    )
    return plan, list(findings(spec, facts, reading, assumed))


def _classes(spec: VisionSpec, reading: Reading, labels: int) -> int:
    if labels and reading.classes and labels != reading.classes and reading.task is not Task.EMBEDDING:
        no_object = spec.postprocess.activation == "softmax" or _has_no_object(reading, labels)
        if not (no_object and reading.head == "detr" and labels == reading.classes - 1):
            nothing = ('in the spec, if its last class is "nothing": postprocess: {activation: softmax}',)
            count = f"{labels} class{'es' if labels > 1 else ''}"
            own = f"its file names {count}" if spec.labels is None else f"{labels} labels were given"
            remedy = "give the labels that it was trained with, one a line, in the order of its outputs"
            raise PlanError(
                f"{spec.name}: {own}, and the network tells {reading.classes} classes apart ({reading.why})",
                remedy if spec.labels is not None else f"--labels FILE: {remedy}",
                "--task raw serves its outputs as they are",
                *(nothing if reading.head == "detr" and labels == reading.classes - 1 else ()),
            )
    return reading.classes or labels


def _batch_size(spec: VisionSpec, facts: GraphFacts) -> int:
    asked = spec.max_batch_size or constants.VISION_BATCH_SIZE
    return 1 if facts.batch == "one" else asked


def _single_network(spec: VisionSpec, facts: GraphFacts, picture: PicturePlan, batch: int) -> NetworkPlan:
    half = spec.precision == "fp16"
    pixels = TensorRow(name=PIXELS, dtype="UINT8", dims=(picture.height, picture.width, picture.channels))
    weights = facts.weights_bytes // {"fp32": 1, "fp16": 2, "int8": 4, "fp8": 4}[spec.precision]
    live = facts.activation_bytes + 3 * 4 * picture.height * picture.width * picture.channels
    return NetworkPlan(
        role="network",
        model=f"{spec.name}_network",
        instances=spec.instances or 1,
        max_batch_size=batch,
        preferred_batch_sizes=tuple(size for size in (4, 8, 16, 32, 64, 128, 256) if size <= batch),
        max_queue_delay_us=_delay_us(spec, constants.VISION_QUEUE_DELAY_US) if batch > 1 else 0,
        weights_bytes=weights,
        workspace_bytes=constants.VISION_SESSION_BYTES
        + int(facts.weights_bytes * constants.VISION_PACKED_WEIGHTS)
        + int(live * batch * constants.VISION_ARENA_SHARE)
        // (2 if half and spec.runtime == "tensorrt" else 1),
        inputs=(pixels,),
        outputs=tuple(row.model_copy(update={"dims": row.dims[1:]}) for row in facts.outputs),
        runtime=spec.runtime,
        precision=spec.precision,
    )


def _stages(
    spec: VisionSpec, reading: Reading, network: NetworkPlan, batch: int, pixels: int
) -> tuple[StagePlan, ...]:
    pictures = batch * sum(map(tensor_bytes, network.inputs))
    answers = batch * sum(map(tensor_bytes, network.outputs))
    before = StagePlan(
        role="preprocess",
        model=f"{spec.name}_preprocess",
        instances=spec.preprocess.instances or constants.VISION_DECODERS,
        max_batch_size=batch,
        host_bytes=constants.VISION_STAGE_HOST_BYTES,
        scratch_bytes=constants.DECODE_BYTES_PER_PIXEL * pixels,
        shm_bytes=_rounded(constants.ENCODED_PICTURES_BYTES + 2 * pictures),
    )
    if reading.task is Task.RAW:
        return (before,)
    whole = reading.task is Task.SEGMENTATION
    each = constants.THING_MASK_BYTES_PER_PIXEL if reading.head else constants.CLASS_MASK_BYTES_PER_PIXEL
    masks = each * pixels if whole else 0
    encoded = constants.ENCODED_PICTURES_BYTES if whole else 0
    after = StagePlan(
        role="postprocess",
        model=f"{spec.name}_postprocess",
        instances=1,
        max_batch_size=batch,
        host_bytes=constants.VISION_STAGE_HOST_BYTES,
        scratch_bytes=_rounded(4 * answers) + masks,
        shm_bytes=_rounded(2 * answers + encoded),
    )
    return (before, after)


def network_shm_bytes(network: NetworkPlan) -> int:
    """/dev/shm of one instance of a network that is served by a Python process (the local target)."""
    tensors = (*network.inputs, *network.outputs)
    return _rounded(2 * network.max_batch_size * sum(map(tensor_bytes, tensors)))


def tensor_bytes(row: TensorRow) -> int:
    """Of one picture's tensor; a free dimension counts as `_ANSWER_ROWS`."""
    total = _BYTES.get(row.dtype, 4)
    for dim in row.dims:
        total *= dim if dim > 0 else _ANSWER_ROWS
    return total


def _rounded(size: int) -> int:
    """Up to whole MiB, by which regions grow."""
    return -(-size // _MIB) * _MIB


def _answer(spec: VisionSpec, facts: GraphFacts, reading: Reading, classes: int, labels: int) -> AnswerPlan:
    given = spec.postprocess
    made = [facts.makers.get(name, "") for name in reading.outputs]
    done = bool({"Softmax", "Sigmoid", "LogSoftmax"} & set(made))
    activation: Any = given.activation or "none"
    if given.activation is None and reading.task is Task.CLASSIFICATION and not done:
        activation = "softmax"
    if (
        given.activation is None
        and reading.head == "detr"
        and len(reading.outputs) == 2
        and made[1] not in ("Sigmoid", "Softmax")
    ):
        activation = "softmax" if _has_no_object(reading, labels) else "sigmoid"
    if given.activation is None and reading.head == "ssd" and not done:
        activation = "softmax"
    if given.activation is None and reading.task is Task.SEGMENTATION and not reading.head and not done:
        activation = "sigmoid" if _scores_one(facts, reading) else "none"
    return AnswerPlan(
        head=reading.head,
        outputs=reading.outputs,
        classes=classes,
        activation=activation,
        anchors=given.anchors or _anchors(spec, reading),
        top_k=min(given.top_k, classes) if classes else given.top_k,
        score_threshold=given.score_threshold,
        iou_threshold=given.iou_threshold,
        max_detections=given.max_detections,
        normalise=given.normalise,
    )


def _has_no_object(reading: Reading, labels: int) -> bool:
    """Whether the last class is "nothing": of COCO, DETR's are 91 and that (Carion et al. 2020)."""
    return reading.head == "detr" and reading.classes == _DETR_CLASSES and labels != _DETR_CLASSES


def _scores_one(facts: GraphFacts, reading: Reading) -> bool:
    """Whether a map has one score a point, in any floating-point type."""
    row = next(row for row in facts.outputs if row.name == reading.outputs[0])
    return len(row.dims) == 4 and 1 in (row.dims[1], row.dims[3]) and row.dtype.startswith("FP")


# Of COCO, widths and heights in pixels of the network's picture, the finest grid's first (darknet, cfg/).
_ANCHORS = {
    2: (10, 14, 23, 27, 37, 58, 81, 82, 135, 169, 344, 319),
    3: (10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326),
}


def _anchors(spec: VisionSpec, reading: Reading) -> tuple[float, ...]:
    if reading.head != "yolov3":
        return ()
    if len(reading.outputs) not in _ANCHORS:
        raise PlanError(
            f"{spec.name}: {len(reading.outputs)} grids need anchors, and none are known for so many",
            "give them: postprocess: {anchors: [w, h, …]} in pixels, the finest grid's first",
        )
    return tuple(float(value) for value in _ANCHORS[len(reading.outputs)])
