"""Text detection: the size a picture is shown to the network in, and boxes out of its probability map.

The network is a DB detector (Liao et al. 2020): it marks the shrunken core of each line, which is grown
back by area × ratio / perimeter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from .components import Runs, connected_runs
from .rectangles import FloatArray, Rectangle, at_angle, convex_hull, smallest

Map = np.ndarray[Any, np.dtype[np.float32]]

_MULTIPLE = 32  # the network halves its input five times
_SHORT_SIDE = 736  # PP-OCR: a smaller picture is enlarged to this
_FLAT = 2.5  # side to side, from which on a small picture may be one line cut out of a page
_SMALL = 100  # pixels of the short side
_STRIP = 8.0  # the same as _FLAT, for a picture of any size
_LINE_HEIGHT = 110  # pixels of the map; letters much higher are found word by word, or not at all
_LEAST_ENLARGED = 2.0  # a border lowers the scale no further: a flat picture can hold small letters too
_PIXEL_THRESHOLD = 0.3
_BOX_THRESHOLD = 0.45  # mean probability over the rectangle, where only the component's pixels count
_UNCLIP_RATIO = 1.6
_MIN_CORE_SIDE = 3.0  # pixels of the map
_MAX_BOXES = 2000  # noise can give many more; the largest are kept
_HALF_PIXEL = 0.5  # from a pixel's centre to its edge
_LONG = 3.0  # width to height, from which on a box shows the direction of its text
_FAIRLY_LONG = 1.8  # the same, on a page without longer ones
_STRAY_ANGLE = math.radians(8)


@dataclass(frozen=True)
class Detection:
    """A line of text: where it is in the map, and how sure the network was (0 to 1)."""

    box: Rectangle
    score: float


def map_size(width: int, height: int, *, max_pixels: int) -> tuple[int, int]:
    """Width and height, both multiples of 32, that a picture is resized to for the network."""
    scale = max(1.0, _SHORT_SIDE / min(width, height))
    scale = min(scale, math.sqrt(max_pixels / (width * height)))
    sides = [max(_MULTIPLE, round(side * scale / _MULTIPLE) * _MULTIPLE) for side in (width, height)]
    while sides[0] * sides[1] > max_pixels and max(sides) > _MULTIPLE:
        sides[sides.index(max(sides))] -= _MULTIPLE
    return sides[0], sides[1]


def border(width: int, height: int, *, max_pixels: int) -> int:
    """Pixels to lay around a flat picture, so that a line that fills it is seen as a line on a page.

    Enlarged to 736 pixels of height, such a line is higher than any the network was trained on, and has no
    margin. The border is as wide as `map_size` needs to show the line about 110 pixels high.
    """
    short, long = sorted((width, height))
    if long < (_FLAT if short <= _SMALL else _STRIP) * short:
        return 0
    scale = max(_LEAST_ENLARGED, _LINE_HEIGHT / short)
    by_side = _SHORT_SIDE / scale - short
    # (width + b) (height + b) = max_pixels / scale²
    by_pixels = (math.sqrt((long - short) ** 2 + 4 * max_pixels / scale**2) - long - short) / 2
    return max(0, round(min(by_side, by_pixels) / 2))


def network_input(image: Image.Image, size: tuple[int, int]) -> Map:
    """[1, 3, height, width] in BGR, from −1 to 1."""
    return normalised(image.resize(size, Image.Resampling.BILINEAR))[np.newaxis]


def normalised(image: Image.Image) -> Map:
    """[3, height, width] in BGR, from −1 to 1, as the PP-OCR networks were trained."""
    samples = np.asarray(image)
    values = np.empty((3, *samples.shape[:2]), np.float32)
    for channel in range(3):  # each in one pass: six times as fast as turning the axes of a float array
        np.multiply(samples[:, :, 2 - channel], np.float32(1 / 127.5), out=values[channel])
    values -= np.float32(1)
    return values


def boxes(probability: Map) -> list[Detection]:
    """Rectangles of the lines in a probability map [height, width], in the map's coordinates.

    Widths run along the text: to the right, or downwards where a line stands upright.
    """
    runs = connected_runs(probability > _PIXEL_THRESHOLD)
    mass = _mass(probability, runs)
    hulls, scores, cores = [], [], []
    for label, points in _outlines(runs):
        hull = convex_hull(points)
        core = smallest(hull).grown(_HALF_PIXEL)
        score = float(mass[label]) / (core.width * core.height)
        if min(core.width, core.height) >= _MIN_CORE_SIDE and score >= _BOX_THRESHOLD:
            hulls.append(hull)
            cores.append(core)
            scores.append(min(1.0, score))
    return [
        Detection(_unclipped(box), score) for box, score in zip(_aligned(cores, hulls), scores, strict=True)
    ]


def _mass(probability: Map, runs: Runs) -> FloatArray:
    """Sum of the probabilities of each component's pixels."""
    height, width = probability.shape
    sums = np.zeros((height, width + 1))
    np.cumsum(probability, axis=1, dtype=np.float64, out=sums[:, 1:])
    of_run = sums[runs.rows, runs.stops] - sums[runs.rows, runs.starts]
    return np.bincount(runs.labels, of_run, minlength=runs.count).astype(np.float64)


def _outlines(runs: Runs) -> list[tuple[int, FloatArray]]:
    """Label and outermost pixels' centres [n, 2] of each component worth a look, the largest at most."""
    pixels = np.bincount(runs.labels, runs.stops - runs.starts, minlength=runs.count)
    kept = np.flatnonzero(pixels >= _MIN_CORE_SIDE**2)
    kept = np.sort(kept[np.argsort(-pixels[kept], kind="stable")[:_MAX_BOXES]])
    order = np.argsort(runs.labels, kind="stable")
    bounds = np.searchsorted(runs.labels[order], np.arange(runs.count + 1))
    outlines = []
    for label in kept.tolist():
        own = order[bounds[label] : bounds[label + 1]]
        ends = np.flatnonzero(
            np.diff(runs.rows[own], append=-1)
        )  # the last run of each row; the next begins one
        rows, stops = runs.rows[own][ends], runs.stops[own][ends]
        starts = runs.starts[own][np.concatenate([[0], ends[:-1] + 1])]
        x = np.concatenate([starts, stops - 1]) + _HALF_PIXEL
        y = np.concatenate([rows, rows]) + _HALF_PIXEL
        outlines.append((label, np.stack([x, y], axis=1)))
    return outlines


def _aligned(cores: list[Rectangle], hulls: list[FloatArray]) -> list[Rectangle]:
    """Cores with their width along the text.

    Long ones show it themselves. The smallest rectangle around a short word can lie at any angle, and a
    lone digit is higher than wide: those follow the long ones, or the picture where there are none.
    """
    standing = [core.turned(1) if core.height > core.width else core for core in cores]
    ratios = np.array([core.width / core.height for core in standing])
    least = _LONG if (ratios >= _LONG).any() else _FAIRLY_LONG
    skew, down = _page_direction(
        [core for core, ratio in zip(standing, ratios, strict=True) if ratio >= least]
    )
    aligned = []
    for core, hull, ratio in zip(standing, hulls, ratios, strict=True):
        if ratio < least:
            core = (
                at_angle(hull, skew).grown(_HALF_PIXEL)
                if abs(_skew(core.angle - skew)) > _STRAY_ANGLE
                else core
            )
            if _points_down(core) != down:
                core = core.turned(1 if down else -1)
        aligned.append(core)
    return aligned


def _page_direction(long: list[Rectangle]) -> tuple[float, bool]:
    """The median skew of lines, weighted by their length, and whether most of them run downwards."""
    if not long:
        return 0.0, False
    weights = np.array([core.width for core in long])
    skews = np.array([_skew(core.angle) for core in long])
    order = np.argsort(skews)
    middle = int(np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2))
    down = weights @ [_points_down(core) for core in long] > weights.sum() / 2
    return float(skews[order][middle]), bool(down)


def _points_down(box: Rectangle) -> bool:
    return abs(math.sin(box.angle)) > math.sqrt(0.5)


def _skew(angle: float) -> float:
    """The angle to the nearest axis, within ±45 degrees."""
    return (angle + math.pi / 4) % (math.pi / 2) - math.pi / 4


def _unclipped(core: Rectangle) -> Rectangle:
    return core.grown(core.width * core.height * _UNCLIP_RATIO / (2 * (core.width + core.height)))
