from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtbuild_templates.vision_ocr.reading_order import reading_order
from trtbuild_templates.vision_ocr.rectangles import Rectangle

Box = tuple[float, float, float, float]  # left, top, width, height


def order_of(boxes: Sequence[Box], *, turned_by: float = 0.0, seed: int = 1) -> list[int]:
    """Reading order of boxes that are given shuffled, on a page turned by ``turned_by`` radians."""
    shuffled = list(range(len(boxes)))
    random.Random(seed).shuffle(shuffled)
    turn = np.array([[math.cos(turned_by), math.sin(turned_by)], [-math.sin(turned_by), math.cos(turned_by)]])
    rectangles = []
    for index in shuffled:
        left, top, width, height = boxes[index]
        x, y = np.array([left + width / 2, top + height / 2]) @ turn
        rectangles.append(Rectangle(float(x), float(y), width, height, turned_by))
    return [shuffled[place] for place in reading_order(rectangles)]


def column(left: float, top: float, rows: int, width: float = 300) -> list[Box]:
    return [(left, top + 30 * row, width - 40 * (row % 3 == 2), 20) for row in range(rows)]


ONE = column(50, 100, 12)
TWO = column(50, 100, 12) + column(400, 100, 10)
THREE = column(50, 100, 8, 200) + column(280, 100, 8, 200) + column(510, 100, 7, 200)
TITLED = [(50.0, 20.0, 650.0, 40.0), *TWO, (50.0, 520.0, 200.0, 16.0)]
# A headline across both columns in the middle: what is above it is read before what is below.
PARTED = [
    *column(50, 100, 5),
    *column(400, 100, 5),
    (50.0, 270.0, 650.0, 30.0),
    *column(50, 320, 5),
    *column(400, 320, 5),
]
RECEIPT = [
    (left, 100.0 + 40 * row, width, 20.0) for row in range(6) for left, width in ((50, 180), (400, 60))
]
FORM = [
    (left, 100.0 + 60 * row, width, 25.0)
    for row, value in enumerate((40, 95, 180, 165, 270))
    for left, width in ((40, 150), (330, value))
]
TABLE = [(50.0 + 150 * cell, 100.0 + 40 * row, 70.0, 20.0) for row in range(5) for cell in range(4)]


@pytest.mark.parametrize("degrees", [0, 5, -5, 90, 180, 270, 183])
@pytest.mark.parametrize(
    "page",
    [ONE, TWO, THREE, TITLED, PARTED, RECEIPT, FORM, TABLE],
    ids=[
        "one column",
        "two columns",
        "three columns",
        "title and footer",
        "parted",
        "receipt",
        "form",
        "table",
    ],
)
def test_pages_are_read_as_people_read_them(page: list[Box], degrees: int) -> None:
    assert order_of(page, turned_by=math.radians(degrees)) == list(range(len(page)))


boxes = st.tuples(st.floats(0, 900), st.floats(0, 900), st.floats(1, 400), st.floats(1, 60))


@settings(max_examples=60)
@given(st.lists(boxes, max_size=40), st.floats(-math.pi, math.pi))
def test_every_line_is_read_exactly_once(page: list[Box], angle: float) -> None:
    assert sorted(order_of(page, turned_by=angle)) == list(range(len(page)))
