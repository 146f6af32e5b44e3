"""How a picture is brought to a network: as the spec says, else as its graph tells, else as networks of its
kind are trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trtbuild.errors import PlanError
from trtbuild.plan.graph import DEFAULT_SIDE, OTHER_SIDE, GraphFacts
from trtbuild.plan.model import PicturePlan
from trtbuild.plan.vision_task import Reading
from trtbuild.spec import PreprocessSpec, Task, VisionSpec

_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of values from 0 to 1, RGB
_YOLO_PAD = 114
_CROP_SHARE = 0.875
_YOLO = ("yolov3", "yolov5", "yolov8")


@dataclass(frozen=True)
class Assumed:
    """What of a picture's preparation nobody said.

    Attributes:
        usual: settings that follow from what the model is, in words.
        guessed: mean and deviation in words, where nothing but the task speaks for them; else empty.
    """

    usual: tuple[str, ...]
    guessed: str = ""


def picture_size(spec: VisionSpec, facts: GraphFacts) -> tuple[int, int]:
    """Width and height of the network's picture.

    Raises:
        PlanError: another size was asked for than the graph has.
    """
    asked = spec.preprocess.size
    side = DEFAULT_SIDE.get(spec.task.value if spec.task else "", OTHER_SIDE)
    trained = [
        int(word) for word in facts.metadata.get("imgsz", "").strip("[]").split(",") if word.strip().isdigit()
    ]
    default = (trained[-1], trained[0]) if trained else (side, side)
    found = []
    for name, fixed, place in (("width", facts.width, 0), ("height", facts.height, 1)):
        if asked is not None and fixed > 0 and asked[place] != fixed:
            raise PlanError(
                f"{spec.name}: {facts.origin} takes a {name} of {fixed}, and {asked[place]} was asked for",
                "leave `size` out of `preprocess`",
                "export the model with a free height and width",
            )
        found.append(fixed if fixed > 0 else (asked or default)[place])
    return found[0], found[1]


def plan_picture(
    spec: VisionSpec, facts: GraphFacts, reading: Reading, size: tuple[int, int]
) -> tuple[PicturePlan, Assumed]:
    """Size, fit and arithmetic, and what of it was assumed.

    Raises:
        PlanError: means or deviations that are not one a channel.
    """
    given = spec.preprocess
    fit, mean, std = _trained_with(reading)
    crop_share = _CROP_SHARE
    known = reading.head in _YOLO or _is_yolo(reading) or bool(facts.metadata.get("task"))
    if reading.task is Task.CLASSIFICATION and facts.metadata.get("task") == "classify":
        mean, std, crop_share = (0.0,), (1.0,), 1.0  # Ultralytics, data/augment.py: classify_transforms
    if facts.channels == len(mean) + 1 == 4:  # transparency, from 0 to 1
        mean, std = (*mean, 0.0), (*std, 1.0)
    if facts.picture_input.dtype == "UINT8":
        mean, std, known = (0.0,), (1 / 255,), True
    elif facts.own_range:
        mean, std, known = (0.0,), (1 / facts.own_range,), True
    means = _per_channel(spec, given.mean or mean, facts.channels)
    stds = _per_channel(spec, given.std or std, facts.channels)
    if any(value <= 0 for value in stds):
        raise PlanError(f"{spec.name}: preprocess.std is {list(stds)}; each must be above 0")
    picture = PicturePlan(
        width=size[0],
        height=size[1],
        channels=facts.channels,
        fit=given.fit or fit,
        crop_share=given.crop_share or crop_share,
        pad=_YOLO_PAD if given.pad is None else given.pad,
        resample=given.resample or "bilinear",
        swap_colours=given.colours == "bgr",
        scale=tuple(1 / (255 * value) for value in stds),
        offset=tuple(-m / s for m, s in zip(means, stds, strict=True)),
    )
    arithmetic = ""
    if given.mean is None or given.std is None:
        arithmetic = f"mean {_listed(means)} and std {_listed(stds)} of values from 0 to 1"
    if arithmetic and facts.picture_input.dtype == "UINT8" and given.mean is given.std is None:
        arithmetic = "values from 0 to 255, as its input is UINT8"
    usual = tuple(_usual(given, picture, "" if facts.own_range or not known else arithmetic))
    return picture, Assumed(usual, "" if known else arithmetic)


def _trained_with(reading: Reading) -> tuple[Any, tuple[float, ...], tuple[float, ...]]:
    """Fit, mean and deviation that models of a task are usually trained with."""
    if reading.head in _YOLO or _is_yolo(reading):
        return "letterbox", (0.0,), (1.0,)
    if reading.task in (Task.DETECTION, Task.RAW):
        return "stretch", (0.0,), (1.0,)
    fit = "stretch" if reading.task is Task.SEGMENTATION else "crop"
    return fit, _IMAGENET_MEAN, _IMAGENET_STD


def _is_yolo(reading: Reading) -> bool:
    """Whether boxes that are ready come from a YOLO's export: rows of one output, or EfficientNMS's names."""
    if reading.head != "boxes":
        return False
    return len(reading.outputs) == 1 or all(name.lower().startswith("det_") for name in reading.outputs)


def _per_channel(spec: VisionSpec, values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if len(values) == 1:
        return values * channels
    if len(values) != channels:
        if channels == 1:
            return (sum(values) / len(values),)
        raise PlanError(
            f"{spec.name}: {len(values)} values of mean or std were given, and its pictures have {channels} "
            "channels",
            f"give one value, or {channels}",
        )
    return values


def _usual(given: PreprocessSpec, picture: PicturePlan, arithmetic: str) -> Iterator[str]:
    if given.fit is None:
        yield f"fit: {picture.fit}"
    if arithmetic:
        yield arithmetic
    if given.colours is None and picture.channels > 1:
        yield "colours: rgb"


def _listed(values: tuple[float, ...]) -> str:
    shown = [f"{value:.4g}" for value in dict.fromkeys(values)]
    return ", ".join(shown)
