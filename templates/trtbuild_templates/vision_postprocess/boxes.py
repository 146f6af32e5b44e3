"""The boxes that are kept of each picture, in its own coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from .heads import Candidates
from .settings import Settings

_MOST_CANDIDATES = 5000  # of a picture, the best; noise can give every cell of a grid


def kept(found: Candidates, geometry: Any, settings: Settings) -> list[Any]:
    """Indices into ``found`` of each picture's boxes, best first; boxes outside their picture are dropped.

    Args:
        geometry: [n, 6], see `vision_preprocess`.
    """
    corners = in_picture(found, geometry)
    whole = (corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])
    picked = []
    for picture in range(len(geometry)):
        own = np.flatnonzero((found.picture == picture) & whole)
        own = own[np.lexsort((found.number[own], -found.score[own]))][:_MOST_CANDIDATES]
        if found.overlap:
            own = own[strongest(found.corners[own], found.class_id[own], settings)]
        picked.append(own[: settings.max_detections])
    return picked


def strongest(corners: Any, class_ids: Any, settings: Settings) -> Any:
    """Non-maximum suppression: indices of boxes that no better one of their class covers.

    Args:
        corners: [m, 4], best first.
    """
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    left = np.arange(len(corners))
    chosen: list[int] = []
    while len(left) and len(chosen) < settings.max_detections:
        first, rest = left[0], left[1:]
        chosen.append(int(first))
        low = np.maximum(corners[first, :2], corners[rest, :2])
        high = np.minimum(corners[first, 2:], corners[rest, 2:])
        shared = np.clip(high - low, 0, None).prod(axis=1)
        union = areas[first] + areas[rest] - shared
        covered = (shared > settings.iou_threshold * union) & (class_ids[rest] == class_ids[first])
        left = rest[~covered]
    return np.array(chosen, np.int64)


def in_picture(found: Candidates, geometry: Any) -> Any:
    """Corners [m, 4] in pixels of the upright pictures, cut off at their edges."""
    own = np.asarray(geometry, np.float64)[found.picture]
    scale, shift, size = own[:, [0, 1, 0, 1]], own[:, [2, 3, 2, 3]], own[:, [4, 5, 4, 5]]
    return np.clip((found.corners - shift) / scale, 0, size).astype(np.float32)
