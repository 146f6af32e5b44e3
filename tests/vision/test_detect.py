from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from trtbuild_templates.vision_ocr.detect import border, boxes, map_size, normalised
from trtbuild_templates.vision_ocr.rectangles import Rectangle

MAX_PIXELS = 2_097_152
sides = st.integers(1, 60_000)


@given(sides, sides)
def test_a_map_has_multiples_of_32_and_stays_within_its_pixels(width: int, height: int) -> None:
    map_width, map_height = map_size(width, height, max_pixels=MAX_PIXELS)
    assert map_width % 32 == map_height % 32 == 0
    assert min(map_width, map_height) >= 32
    assert map_width * map_height <= MAX_PIXELS


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((384, 191), (1472, 736)),  # enlarged: the short side becomes 736, 384 × 736 / 191 = 1479.7
        ((1000, 800), (992, 800)),  # large enough as it is
        ((4032, 3024), (1664, 1248)),  # reduced: 4032 × sqrt(2,097,152 / 12,192,768) = 1672.2
    ],
)
def test_the_size_a_picture_is_shown_in(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert map_size(*size, max_pixels=MAX_PIXELS) == expected


@given(sides, sides)
def test_a_border_makes_the_map_no_larger_than_is_allowed_and_the_scale_no_finer(
    width: int, height: int
) -> None:
    around = border(width, height, max_pixels=MAX_PIXELS)
    size = width + 2 * around, height + 2 * around
    plain = map_size(width, height, max_pixels=MAX_PIXELS)
    assert around >= 0
    assert map_size(*size, max_pixels=MAX_PIXELS)[0] / size[0] <= plain[0] / width + 32 / size[0]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (
            (95, 18),
            51,
        ),  # a word shown 110 pixels high, so 6.11 times as large: 736 / 6.11 = 120.4 = 18 + 2 × 51
        ((18, 95), 51),  # upright
        ((700, 34), 95),  # bound by the map's pixels: (700 + 190) × (34 + 190) × (110 / 34)² = 2.09 million
        ((12_500, 87), 0),  # as much enlarged as the pixels allow, its line is already low enough
        ((400, 90), 139),  # twice as large is the least: 736 / 2 = 368 = 90 + 2 × 139
        ((41, 30), 0),  # not flat
        ((900, 192), 0),  # flat, and large enough for several lines
    ],
)
def test_a_border_goes_around_what_may_be_a_single_line(size: tuple[int, int], expected: int) -> None:
    assert border(*size, max_pixels=MAX_PIXELS) == expected


def probability(*cores: Rectangle, value: float = 0.9) -> np.ndarray:
    canvas = Image.new("F", (600, 400), 0.0)
    for core in cores:
        ImageDraw.Draw(canvas).polygon([tuple(corner) for corner in core.corners], fill=value)
    return np.asarray(canvas)


@pytest.mark.parametrize("degrees", [0, 5, -20, 40, 90, 70])
def test_a_core_grows_back_to_its_line(degrees: float) -> None:
    (found,) = boxes(probability(Rectangle(300, 200, 200, 20, math.radians(degrees))))
    # grown by area × 1.6 / perimeter on each side: 200 × 20 × 1.6 / 440 = 14.5; Pillow also fills the pixels
    # that the polygon's edge touches, up to 1.4 on each side at a slant
    assert (found.box.x, found.box.y) == pytest.approx((300, 200), abs=1.5)
    assert (found.box.width, found.box.height) == pytest.approx((229, 49), abs=6)
    assert math.degrees(found.box.angle) == pytest.approx(degrees, abs=1)
    assert found.score == pytest.approx(0.9, abs=0.06)


def test_specks_and_doubtful_regions_are_no_lines() -> None:
    assert boxes(probability(Rectangle(300, 200, 1, 1, 0.0))) == []
    assert boxes(probability(Rectangle(300, 200, 200, 20, 0.0), value=0.35)) == []
    assert boxes(np.zeros((64, 64), np.float32)) == []


def test_a_short_word_takes_the_direction_of_the_long_lines() -> None:
    skew = math.radians(5)
    line, word = Rectangle(300, 100, 400, 20, skew), Rectangle(300, 200, 24, 30, skew)
    _, found = sorted(boxes(probability(line, word)), key=lambda item: item.box.y)
    assert math.degrees(found.box.angle) == pytest.approx(5, abs=8)


def test_a_short_word_beside_upright_lines_stands_upright() -> None:
    line, word = Rectangle(100, 200, 300, 20, math.pi / 2), Rectangle(300, 200, 30, 24, 0.0)
    for found in boxes(probability(line, word)):
        assert math.degrees(found.box.angle) == pytest.approx(90, abs=8)


def test_noise_gives_a_bounded_number_of_boxes() -> None:
    grid = np.ones((1200, 1200), np.float32)
    grid[::6], grid[:, ::6] = 0, 0  # 40,000 squares of 5 × 5
    assert len(boxes(grid)) == 2000


def test_samples_become_bgr_between_minus_1_and_1() -> None:
    pixels = np.array([[[255, 0, 51]]], np.uint8)  # 51 / 127.5 − 1 = −0.6
    np.testing.assert_allclose(normalised(Image.fromarray(pixels))[:, 0, 0], [-0.6, -1, 1], atol=1e-6)
