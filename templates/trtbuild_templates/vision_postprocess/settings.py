"""What the model's parameters say of the network's outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Attributes are the parameters of the same names; ``labels`` are the lines of labels.txt."""

    task: str
    head: str
    classes: int
    activation: str
    width: int
    height: int
    top_k: int
    score_threshold: float
    iou_threshold: float
    max_detections: int
    normalise: bool
    anchors: tuple[float, ...] = ()
    labels: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, parameters: Mapping[str, str], labels: Sequence[bytes] = ()) -> Settings:
        """From the model's parameters.

        Raises:
            KeyError, ValueError: one is missing or is none.
        """
        anchors = parameters.get("anchors", "")
        return cls(
            task=parameters["task"],
            head=parameters.get("head", ""),
            classes=int(parameters["classes"]),
            activation=parameters["activation"],
            width=int(parameters["width"]),
            height=int(parameters["height"]),
            top_k=int(parameters["top_k"]),
            score_threshold=float(parameters["score_threshold"]),
            iou_threshold=float(parameters["iou_threshold"]),
            max_detections=int(parameters["max_detections"]),
            normalise=parameters["normalise"] == "true",
            anchors=tuple(float(word) for word in anchors.split(",")) if anchors else (),
            labels=tuple(labels),
        )

    def label(self, number: int) -> bytes:
        """The name of a class, or its number where it has none."""
        return self.labels[number] if 0 <= number < len(self.labels) else str(number).encode()
