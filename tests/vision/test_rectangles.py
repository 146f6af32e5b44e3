from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild_templates.vision_ocr.rectangles import Rectangle, convex_hull, smallest

lengths = st.floats(1, 500)
angles = st.floats(-math.pi / 4 + 0.01, math.pi / 4)
points = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=40)


@given(st.floats(-1000, 1000), st.floats(-1000, 1000), lengths, lengths, angles)
def test_the_smallest_rectangle_around_a_rectangle_is_itself(
    x: float, y: float, width: float, height: float, angle: float
) -> None:
    given_one = Rectangle(x, y, width, height, angle)
    found = smallest(convex_hull(given_one.corners))
    assert found.width * found.height == pytest.approx(width * height, rel=1e-6)
    assert (found.x, found.y) == pytest.approx((x, y), abs=1e-6)


@given(points)
def test_a_hull_holds_every_point_and_turns_one_way(raw: list[tuple[int, int]]) -> None:
    cloud = np.array(raw, float)
    hull = convex_hull(cloud)
    assert {tuple(corner) for corner in hull} <= {tuple(point) for point in cloud}
    if len(hull) < 3:
        return
    sides = np.roll(hull, -1, axis=0) - hull
    for point in cloud:
        offsets = point - hull
        assert (sides[:, 0] * offsets[:, 1] - sides[:, 1] * offsets[:, 0] >= -1e-9).all()


@given(points)
def test_the_smallest_rectangle_holds_every_point_and_is_no_larger_than_the_level_one(
    raw: list[tuple[int, int]],
) -> None:
    cloud = np.array(raw, float)
    box = smallest(convex_hull(cloud))
    down = np.array([-box.along[1], box.along[0]])
    offsets = cloud - (box.x, box.y)
    assert (np.abs(offsets @ box.along) <= box.width / 2 + 1e-6).all()
    assert (np.abs(offsets @ down) <= box.height / 2 + 1e-6).all()
    assert box.width * box.height <= np.ptp(cloud[:, 0]) * np.ptp(cloud[:, 1]) + 1e-6


def test_corners_are_clockwise_from_the_top_left() -> None:
    corners = Rectangle(50, 20, 40, 10, 0.0).corners
    np.testing.assert_allclose(corners, [[30, 15], [70, 15], [70, 25], [30, 25]])


def test_a_quarter_turn_keeps_the_rectangle_and_moves_its_first_corner() -> None:
    box = Rectangle(50, 20, 40, 10, 0.0)
    np.testing.assert_allclose(box.turned(1).corners, np.roll(box.corners, -1, axis=0), atol=1e-9)
    np.testing.assert_allclose(box.turned(-1).corners, np.roll(box.corners, 1, axis=0), atol=1e-9)


def test_scaling_moves_the_corners_with_the_picture() -> None:
    box = Rectangle(50, 20, 40, 10, 0.0)
    np.testing.assert_allclose(box.scaled(2, 3).corners, box.corners * (2, 3))
