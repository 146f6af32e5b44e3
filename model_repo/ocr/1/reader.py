"""A picture of a page to its lines of text, with the networks as a parameter.

Detection, line orientation, recognition, reading order: everything that is not a network happens here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from PIL import Image

from . import detect
from .lines import HEIGHT, Page, padded, pieces
from .picture import Picture, framed
from .reading_order import reading_order
from .recognise import Reading, decode, joined
from .rectangles import Rectangle

_CLASSIFIER_WIDTH = 192
_CLASSIFIER_SQUEEZE = 2
_SURE = 0.9  # of the orientation classifier
_EVIDENCE = 5.0  # letters' widths of sure lines, more turned than not, that turn a page
_MARGIN = 0.02  # by which a line must read better upside down
_DOUBTFUL = 0.7  # a line that reads worse is also read upside down
_KEPT = 0.5  # PP-OCR: lines that read worse are noise
_KEPT_ALONE = 0.85  # the same, for a single letter
_LARGE_LETTER = 200  # pixels high
_FEWEST_PIXELS = 3  # of a side, below which there can be no text
# Each a quarter wider than the one before: lines of several pictures meet in few shapes, little is padding.
_WIDTHS = (96, 128, 160, 208, 256, 320, 400, 512, 640, 800, 1024, 1280, 1600, 2048, 2560)


class Networks(Protocol):
    """The three networks. Arrays are float32; every array of a list is one item, without batch dimension."""

    def probability(self, pixels: Any) -> Any:
        """[1, 3, h, w] → text probability [h, w]."""

    def upside_down(self, lines: Sequence[Any]) -> Any:
        """Lines [3, 48, 192] → probability [n] that each is upside down."""

    def labels(self, lines: Sequence[Any]) -> Sequence[tuple[Any, Any]]:
        """Lines [3, 48, w] → the best label at each step and its probability, a pair a line."""


@dataclass(frozen=True)
class Settings:
    """Limits that follow from what the networks were planned for."""

    characters: tuple[str, ...]
    map_pixels: int = 2_097_152  # largest input of the detector
    line_width: int = 1280  # widest input of the recogniser


@dataclass(frozen=True)
class Line:
    """One line of text.

    ``corners`` [4, 2] are pixels of the upright picture, clockwise from the text's own top left;
    ``score`` is the mean probability of its characters.
    """

    text: str
    score: float
    corners: Any


class Reader:
    """Reads pictures with one set of networks."""

    def __init__(self, networks: Networks, settings: Settings) -> None:
        self._networks = networks
        self._settings = settings
        self._widths = (*(w for w in _WIDTHS if w < settings.line_width), settings.line_width)

    def read(self, picture: Picture) -> list[Line]:
        """The lines of a picture in reading order; a picture without text gives none."""
        image = picture.image
        if min(image.size) < _FEWEST_PIXELS:
            return []
        max_pixels = self._settings.map_pixels
        border = detect.border(*image.size, max_pixels=max_pixels)
        seen = framed(image, border)
        size = detect.map_size(*seen.size, max_pixels=max_pixels)
        probability = self._networks.probability(detect.network_input(seen, size))
        scale = seen.width / size[0], seen.height / size[1]
        boxes = [found.box.scaled(*scale) for found in detect.boxes(probability)]
        if not boxes:
            return []
        page = Page(seen)
        crops = [page.line(box) for box in boxes]
        boxes, crops, readings = self._upright(boxes, crops)
        kept = [i for i, reading in enumerate(readings) if _is_text(reading, boxes[i], image.size)]
        order = reading_order([boxes[i] for i in kept])
        to_original = np.array([picture.width / image.width, picture.height / image.height])
        limits = np.array([picture.width, picture.height])
        return [
            Line(
                readings[i].text.strip(),
                readings[i].score,
                np.clip((boxes[i].corners - border) * to_original, 0, limits).astype(np.float32),
            )
            for i in (kept[place] for place in order)
        ]

    def _upright(
        self, boxes: list[Rectangle], crops: list[Image.Image]
    ) -> tuple[list[Rectangle], list[Image.Image], list[Reading]]:
        """Turns lines that stand on their head, and reads all of them.

        The classifier errs on short lines, so the page as a whole decides, and a line that disagrees or
        reads badly is read both ways.
        """
        turned = np.asarray(self._networks.upside_down([_classifier_input(crop) for crop in crops]))
        sure = np.abs(turned - 0.5) >= _SURE - 0.5
        letters = np.array([box.width / box.height for box in boxes])
        page_turned = bool(letters[sure] @ np.sign(turned[sure] - 0.5) >= _EVIDENCE)
        if page_turned:
            for i in range(len(boxes)):
                boxes[i], crops[i] = _turned(boxes[i], crops[i])
        readings = self._readings(crops)
        doubtful = [
            i
            for i, reading in enumerate(readings)
            if reading.score < _DOUBTFUL or (sure[i] and (turned[i] > 0.5) != page_turned)
        ]
        others = [_turned(boxes[i], crops[i]) for i in doubtful]
        for i, (box, crop), reading in zip(
            doubtful, others, self._readings([crop for _, crop in others]), strict=True
        ):
            if reading.score > readings[i].score + _MARGIN:
                boxes[i], crops[i], readings[i] = box, crop, reading
        return boxes, crops, readings

    def _readings(self, crops: Sequence[Image.Image]) -> list[Reading]:
        parts: list[list[Reading]] = [[] for _ in crops]
        owners, inputs = [], []
        for owner, crop in enumerate(crops):
            values = detect.normalised(crop)
            for start, stop in pieces(crop, self._settings.line_width):
                width = next(w for w in self._widths if w >= stop - start)
                owners.append(owner)
                inputs.append(padded(values[:, :, start:stop], width))
        for owner, (labels, scores) in zip(owners, self._networks.labels(inputs), strict=True):
            parts[owner].append(decode(labels, scores, self._settings.characters))
        return [joined(part) for part in parts]


def _is_text(reading: Reading, box: Rectangle, size: tuple[int, int]) -> bool:
    """Whether a line is text, and not a round thing in a photograph that reads as an 8."""
    letters = len(reading.text.strip())
    if letters > 1:
        return reading.score >= _KEPT
    fills_photograph = box.height > _LARGE_LETTER and box.width * box.height > size[0] * size[1]
    return letters == 1 and reading.score >= _KEPT_ALONE and not fills_photograph


def _turned(box: Rectangle, crop: Image.Image) -> tuple[Rectangle, Image.Image]:
    return replace(box, angle=box.angle + np.pi), crop.transpose(Image.Transpose.ROTATE_180)


def _classifier_input(crop: Image.Image) -> Any:
    """The middle of a line: a long one squeezed to the classifier's width would be illegible to it."""
    spare = max(0, crop.width - _CLASSIFIER_SQUEEZE * _CLASSIFIER_WIDTH) // 2
    middle = crop.crop((spare, 0, crop.width - spare, HEIGHT))
    width = min(middle.width, _CLASSIFIER_WIDTH)
    return padded(
        detect.normalised(middle.resize((width, HEIGHT), Image.Resampling.BILINEAR)), _CLASSIFIER_WIDTH
    )
