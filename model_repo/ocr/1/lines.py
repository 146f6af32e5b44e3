"""Pictures of single lines: cut out of the page, set level, 48 pixels high."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from PIL import Image

from .rectangles import Rectangle

HEIGHT = 48  # of the recogniser's input
_FINEST = 2 * HEIGHT  # a line is sampled from the level of the pyramid in which it is about this high


class Page:
    """A picture and its halvings, from which lines are cut without aliasing."""

    def __init__(self, image: Image.Image) -> None:
        self._levels = [image]
        self._beyond = image.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))

    def line(self, box: Rectangle) -> Image.Image:
        """The content of ``box``, its width laid level, ``HEIGHT`` pixels high.

        Args:
            box: in pixels of the page's picture; beyond its edge lies the page's mean colour.
        """
        level = 0
        while box.height / 2**level >= 2 * _FINEST:
            level += 1
        source = self._level(level)
        box = box.scaled(source.width / self._levels[0].width, source.height / self._levels[0].height)
        width = line_width(box)
        factor = min(2.0, max(1.0, box.height / HEIGHT))  # a higher line is sampled finer, then averaged
        fine = (round(width * factor), round(HEIGHT * factor))
        origin = box.corners[0]
        right = box.along * (box.width / fine[0])
        down = np.array([-box.along[1], box.along[0]]) * (box.height / fine[1])
        affine = (right[0], down[0], origin[0], right[1], down[1], origin[1])
        sampling = Image.Resampling.BICUBIC if box.height < HEIGHT else Image.Resampling.BILINEAR
        line = source.transform(fine, Image.Transform.AFFINE, affine, sampling, fillcolor=self._beyond)
        return line if fine == (width, HEIGHT) else line.resize((width, HEIGHT), Image.Resampling.BILINEAR)

    def _level(self, level: int) -> Image.Image:
        while len(self._levels) <= level:
            self._levels.append(self._levels[-1].reduce(2))
        return self._levels[level]


def line_width(box: Rectangle) -> int:
    """Width in pixels of the box when its height becomes ``HEIGHT``."""
    return max(1, math.ceil(HEIGHT * box.width / max(box.height, 1e-6)))


def pieces(line: Image.Image, max_width: int) -> list[tuple[int, int]]:
    """Columns (start, stop) of the parts of a line that are at most ``max_width`` wide, cut between letters.

    Each cut is made where the columns vary least, in the last third of what would still fit.
    """
    if line.width <= max_width:
        return [(0, line.width)]
    ink = np.asarray(line.convert("L"), np.float32).std(axis=0)
    gap = np.convolve(ink, np.ones(7, np.float32) / 7, mode="same")
    count = math.ceil(line.width / max_width)
    cuts = [0]
    while line.width - cuts[-1] > max_width:
        share = min(max_width, math.ceil(1.15 * (line.width - cuts[-1]) / count))
        low = cuts[-1] + (2 * share) // 3
        cuts.append(low + int(np.argmin(gap[low : cuts[-1] + share])))
        count = max(1, math.ceil((line.width - cuts[-1]) / max_width))
    return list(zip(cuts, [*cuts[1:], line.width], strict=True))


def padded(line: Any, width: int) -> Any:
    """A normalised line [3, HEIGHT, w] with mid-grey (0) to its right, [3, HEIGHT, width]."""
    canvas = np.zeros((3, HEIGHT, width), np.float32)
    canvas[:, :, : line.shape[2]] = line
    return canvas
