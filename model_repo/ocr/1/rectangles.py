"""The smallest rotated rectangle around a set of points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Rectangle:
    """A rotated rectangle in picture coordinates (x to the right, y down, pixel i spans i to i + 1).

    ``angle`` is the direction of ``width``, in radians, clockwise as seen on the picture.
    """

    x: float  # centre
    y: float
    width: float
    height: float
    angle: float

    @property
    def along(self) -> FloatArray:
        """Unit vector of the width."""
        return np.array([np.cos(self.angle), np.sin(self.angle)])

    @property
    def corners(self) -> FloatArray:
        """[4, 2]: clockwise from the one that is top left when the width points to the right."""
        along = self.along * (self.width / 2)
        down = np.array([-self.along[1], self.along[0]]) * (self.height / 2)
        corners: FloatArray = np.array([-along - down, along - down, along + down, down - along])
        corners += (self.x, self.y)
        return corners

    def turned(self, quarters: int) -> Rectangle:
        """The same rectangle with its width pointing along the next side(s), clockwise."""
        width, height = (self.height, self.width) if quarters % 2 else (self.width, self.height)
        return replace(self, width=width, height=height, angle=self.angle + quarters * np.pi / 2)

    def grown(self, distance: float) -> Rectangle:
        """Every side moved outwards by ``distance``."""
        return replace(self, width=self.width + 2 * distance, height=self.height + 2 * distance)

    def scaled(self, x: float, y: float) -> Rectangle:
        """The rectangle after the picture is stretched by nearly equal factors ``x`` and ``y``."""
        along = self.along * (x, y)
        down = np.array([-self.along[1], self.along[0]]) * (x, y)
        return Rectangle(
            self.x * x,
            self.y * y,
            self.width * float(np.hypot(*along)),
            self.height * float(np.hypot(*down)),
            float(np.arctan2(along[1], along[0])),
        )


def convex_hull(points: FloatArray) -> FloatArray:
    """Corners of the hull of points [n, 2], by Andrew's monotone chain."""
    ordered = sorted(set(map(tuple, points.tolist())))
    if len(ordered) < 3:
        return np.array(ordered)

    def half(sequence: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        chain: list[tuple[float, ...]] = []
        for x, y in sequence:
            while len(chain) > 1:
                (ax, ay), (bx, by) = chain[-2], chain[-1]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                chain.pop()
            chain.append((x, y))
        return chain[:-1]

    return np.array(half(ordered) + half(ordered[::-1]))


def at_angle(hull: FloatArray, angle: float) -> Rectangle:
    """The bounding rectangle of points [n, 2] whose width has the given direction."""
    along = np.array([np.cos(angle), np.sin(angle)])
    down = np.array([-along[1], along[0]])
    u, v = hull @ along, hull @ down
    centre = along * (u.min() + u.max()) / 2 + down * (v.min() + v.max()) / 2
    return Rectangle(float(centre[0]), float(centre[1]), float(np.ptp(u)), float(np.ptp(v)), angle)


def smallest(hull: FloatArray) -> Rectangle:
    """The rectangle of least area around a hull [n, 2]; one of its sides lies on a side of the hull.

    Its width points to the right, within 45 degrees.
    """
    if len(hull) < 2:
        return at_angle(hull, 0.0)
    sides = np.roll(hull, -1, axis=0) - hull
    angles = np.unique(np.arctan2(sides[:, 1], sides[:, 0]) % (np.pi / 2))
    along = np.stack([np.cos(angles), np.sin(angles)])
    u = hull @ along
    v = hull @ np.stack([-along[1], along[0]])
    angle = float(angles[np.argmin(np.ptp(u, axis=0) * np.ptp(v, axis=0))])
    return at_angle(hull, angle if angle <= np.pi / 4 else angle - np.pi / 2)
