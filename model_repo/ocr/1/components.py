"""Connected components of a mask, by runs of pixels instead of pixels.

A text map of a million pixels has some ten thousand runs; everything below works on whole arrays of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

IntArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Runs:
    """Horizontal runs of set pixels, ordered by row and then by column.

    ``rows``, ``starts`` and ``stops`` have one entry a run (``stops`` is exclusive); ``labels`` numbers
    the components from 0 to ``count`` − 1, in the order in which they are met from the top.
    """

    rows: IntArray
    starts: IntArray
    stops: IntArray
    labels: IntArray
    count: int


def connected_runs(mask: np.ndarray[Any, np.dtype[np.bool_]]) -> Runs:
    """Labels the components of a mask [height, width]; pixels touch also at their corners."""
    height, width = mask.shape
    padded = np.zeros((height, width + 2), np.int8)
    padded[:, 1:-1] = mask
    edges = np.diff(padded, axis=1).ravel()  # +1 where a run starts, −1 behind its last pixel
    stride = width + 1
    first, behind = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    rows = first // stride
    starts, stops = first - rows * stride, behind - rows * stride
    labels, count = _labels(rows, starts, stops, width + 2)
    return Runs(rows, starts, stops, labels, count)


def _labels(rows: IntArray, starts: IntArray, stops: IntArray, stride: int) -> tuple[IntArray, int]:
    # Runs of the row above that touch run i: those that stop at or behind its start and start at or before
    # its stop. The stride is wider than a row, so no run of another row can fall into the range.
    above = (rows - 1) * stride
    low = np.searchsorted(rows * stride + stops, above + starts, side="left")
    high = np.searchsorted(rows * stride + starts, above + stops, side="right")
    touching = np.maximum(high - low, 0)
    lower = np.repeat(np.arange(len(rows)), touching)
    upper = np.arange(len(lower)) - np.repeat(np.cumsum(touching) - touching, touching) + low[lower]

    root = np.arange(len(rows))
    while True:
        one, other = root[lower], root[upper]
        if np.array_equal(one, other):
            break
        np.minimum.at(root, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(root, root[root]):
            root = root[root]
    roots, labels = np.unique(root, return_inverse=True)
    return labels.astype(np.int64), len(roots)
