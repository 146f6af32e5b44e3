from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from trtbuild_templates.vision_ocr.lines import HEIGHT, Page, line_width, padded, pieces
from trtbuild_templates.vision_ocr.rectangles import Rectangle


@settings(max_examples=50)
@given(st.integers(1, 6000), st.integers(64, 1500), st.integers(0, 2**32 - 1))
def test_pieces_cover_a_line_and_none_is_too_wide(width: int, max_width: int, seed: int) -> None:
    noise = np.random.default_rng(seed).integers(0, 256, (HEIGHT, width, 3), dtype=np.uint8)
    parts = pieces(Image.fromarray(noise), max_width)
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == width
    assert all(0 < stop - start <= max_width for start, stop in parts)


def test_a_line_is_cut_in_its_gap() -> None:
    stripes = np.zeros((HEIGHT, 1000, 3), np.uint8)
    stripes[::2] = 255
    stripes[:, 520:560] = 255  # the only columns without ink
    (_, cut), (start, _) = pieces(Image.fromarray(stripes), 640)
    assert cut == start
    assert 515 <= cut <= 565


@pytest.mark.parametrize("degrees", [0, 5, 90, 180, -30])
@pytest.mark.parametrize("height", [12, 48, 700])
def test_a_line_is_laid_level(degrees: float, height: int) -> None:
    # Its left half is red and its right half blue, on white.
    box = Rectangle(1500, 1500, 4 * height, height, math.radians(degrees))
    page = Image.new("RGB", (3000, 3000), "white")
    for colour, side in (("red", -1), ("blue", 1)):
        centre = np.array([box.x, box.y]) + side * box.along * box.width / 4
        half = Rectangle(*centre.tolist(), box.width / 2, box.height, box.angle)
        ImageDraw.Draw(page).polygon([tuple(corner) for corner in half.corners], fill=colour)
    line = Page(page).line(box)
    assert line.size == (4 * HEIGHT, HEIGHT)
    samples = np.asarray(line).astype(int)
    np.testing.assert_allclose(samples[12:36, 12:80], np.broadcast_to((255, 0, 0), (24, 68, 3)), atol=40)
    np.testing.assert_allclose(samples[12:36, 112:180], np.broadcast_to((0, 0, 255), (24, 68, 3)), atol=40)


def test_a_box_over_the_edge_is_continued() -> None:
    line = Page(Image.new("RGB", (100, 40), (10, 20, 30))).line(Rectangle(50, 20, 140, 60, 0.0))
    np.testing.assert_array_equal(np.unique(np.asarray(line).reshape(-1, 3), axis=0), [[10, 20, 30]])


def test_width_follows_from_the_height() -> None:
    assert line_width(Rectangle(0, 0, 100, 10, 0.0)) == 480  # 48 / 10 × 100
    assert line_width(Rectangle(0, 0, 0.1, 100, 0.0)) == 1


def test_padding_is_mid_grey_on_the_right() -> None:
    canvas = padded(np.ones((3, HEIGHT, 5), np.float32), 8)
    assert canvas.shape == (3, HEIGHT, 8)
    assert (canvas[:, :, :5] == 1).all()
    assert (canvas[:, :, 5:] == 0).all()
