from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from trtbuild_templates.vision_ocr.picture import Picture
from trtbuild_templates.vision_ocr.reader import Reader, Settings


class Ink:
    """Networks that take every dark pixel for text, and every line for "a"."""

    def probability(self, pixels: Any) -> Any:
        return (pixels[0].mean(axis=0) < 0).astype(np.float32)

    def upside_down(self, lines: Sequence[Any]) -> Any:
        return np.zeros(len(lines))

    def labels(self, lines: Sequence[Any]) -> Sequence[tuple[Any, Any]]:
        return [(np.array([1, 0]), np.array([0.9, 0.9], np.float32)) for _ in lines]


@pytest.mark.parametrize("shrunken", [1, 2])
@pytest.mark.parametrize("size", [(300, 30), (300, 300)], ids=["with a border", "without"])
def test_boxes_are_in_pixels_of_the_original_without_the_border(size: tuple[int, int], shrunken: int) -> None:
    image = Image.new("RGB", size, "white")
    image.paste("black", (100, 10, 200, 20))
    picture = Picture(image, size[0] * shrunken, size[1] * shrunken)
    (line,) = Reader(Ink(), Settings(("a",))).read(picture)
    # grown by 100 × 10 × 1.6 / 220 = 7.3 on each side
    expected = np.array([[92.7, 2.7], [207.3, 2.7], [207.3, 27.3], [92.7, 27.3]]) * shrunken
    np.testing.assert_allclose(line.corners, expected, atol=1.5 * shrunken)
