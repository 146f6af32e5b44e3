from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from trtbuild_templates.vision_ocr.components import connected_runs

masks = arrays(
    np.bool_, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=14), elements=st.booleans()
)


def flooded(mask: np.ndarray) -> np.ndarray:
    """Components by flood fill, pixel by pixel: −1 where nothing is set."""
    labels = np.full(mask.shape, -1)
    count = 0
    for start in zip(*np.nonzero(mask), strict=True):
        if labels[start] >= 0:
            continue
        open_pixels = [start]
        while open_pixels:
            y, x = open_pixels.pop()
            if not (0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]) or not mask[y, x] or labels[y, x] >= 0:
                continue
            labels[y, x] = count
            open_pixels += [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
        count += 1
    return labels


@given(masks)
def test_runs_label_pixels_as_a_flood_fill_does(mask: np.ndarray) -> None:
    runs = connected_runs(mask)
    painted = np.full(mask.shape, -1)
    for row, start, stop, label in zip(runs.rows, runs.starts, runs.stops, runs.labels, strict=True):
        assert (painted[row, start:stop] == -1).all()
        painted[row, start:stop] = label
    np.testing.assert_array_equal(painted, flooded(mask))
    assert runs.count == painted.max() + 1


def test_a_spiral_is_one_component() -> None:
    mask = np.zeros((40, 40), bool)
    for ring in range(0, 20, 4):  # every ring is open at one corner and joined to the next one inwards
        mask[ring, ring : 40 - ring] = mask[39 - ring, ring : 40 - ring] = True
        mask[ring : 40 - ring, 39 - ring] = True
        mask[ring + 2 : 40 - ring, ring] = True
        mask[ring + 2, ring : ring + 5] = mask[ring + 2 : ring + 5, ring + 4] = True
    assert connected_runs(mask).count == flooded(mask).max() + 1 == 1
