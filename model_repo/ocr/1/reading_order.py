"""The order in which a page's lines are read: columns one after the other, rows of a table row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .rectangles import Rectangle

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

_TEXT_WIDTH = 5.0  # heights of a line, which the widest box of a column's median row has at least
_TEXT_FILL = 0.7  # of the column's width, which the boxes of its mean row fill at least
_TEXT_PITCH = 2.5  # heights from one row to the next, at most
_MIN_ROWS = 2  # of a column
_APART = 1.5  # heights between a header or footer and the text


def reading_order(boxes: Sequence[Rectangle]) -> list[int]:
    """Indices of ``boxes`` in reading order.

    Args:
        boxes: the lines of one page; widths point in the direction of reading.
    """
    if not boxes:
        return []
    extents = _levelled(boxes)
    return list(_ordered(extents, np.arange(len(boxes))))


def _levelled(boxes: Sequence[Rectangle]) -> FloatArray:
    """[n, 4]: left, top, right, bottom of each box after the page is turned so that most text is level."""
    weights = np.array([max(box.width, 1e-6) for box in boxes])
    angles = np.array([box.angle for box in boxes])
    # The weighted mean direction of those near the strongest quarter: a few stray lines do not turn the page.
    quarter = np.round(angles / (np.pi / 2)).astype(int) % 4
    strongest = int(np.argmax(np.bincount(quarter, weights, minlength=4)))
    near = quarter == strongest
    page = np.angle((weights[near] * np.exp(1j * angles[near])).sum())
    along, down = (np.cos(page), np.sin(page)), (-np.sin(page), np.cos(page))
    corners = np.stack([box.corners for box in boxes])
    x, y = corners @ along, corners @ down
    # A skewed corner overstates a box; its side's middle does not.
    x, y = np.sort(x, axis=1), np.sort(y, axis=1)
    return np.stack([x[:, :2].mean(1), y[:, :2].mean(1), x[:, 2:].mean(1), y[:, 2:].mean(1)], axis=1)


def _ordered(extents: FloatArray, block: Any) -> Iterator[int]:
    """Indices of a block in reading order: columns where it has any, else rows."""
    cut = _best_gutter(extents, block) if len(block) >= 2 * _MIN_ROWS else None
    if cut is None:
        for row in _rows(extents, block):
            yield from row
        return
    for band in _bands(extents, block, cut):
        left, right = _sides(extents, band, cut)
        if len(left) and len(right):
            yield from _ordered(extents, left)
            yield from _ordered(extents, right)
        else:
            yield from _ordered(extents, band)


def _best_gutter(extents: FloatArray, block: Any) -> float | None:
    """The x to both sides of which most lines stand in columns, or None."""
    best, most = None, 0
    for cut in _candidates(extents, block):
        sides = [_sides(extents, band, cut) for band in _bands(extents, block, cut)]
        sides = [(left, right) for left, right in sides if len(left) and len(right)]
        lines = sum(len(left) + len(right) for left, right in sides)
        if lines > most and all(_is_text(extents, np.concatenate(side)) for side in zip(*sides, strict=True)):
            best, most = cut, lines
    return best


def _sides(extents: FloatArray, band: Any, cut: float) -> tuple[Any, Any]:
    return band[extents[band, 2] <= cut], band[extents[band, 0] >= cut]


def _candidates(extents: FloatArray, block: Any) -> list[float]:
    """Middles of the gaps between a right edge and the next left edge, at least half a line wide."""
    height = float(np.median(extents[block, 3] - extents[block, 1]))
    rights, lefts = np.sort(extents[block, 2]), np.sort(extents[block, 0])
    following = np.searchsorted(lefts, rights)
    found: list[float] = []
    for right, index in zip(rights, following, strict=True):
        if index < len(lefts) and lefts[index] - right >= height / 2:
            cut = float(right + lefts[index]) / 2
            if not found or cut - found[-1] > height / 2:
                found.append(cut)
    return found


def _bands(extents: FloatArray, block: Any, cut: float) -> Iterator[Any]:
    """Parts of a block from top to bottom: lines across ``cut``, headers and footers stand alone."""
    across = (extents[block, 0] < cut) & (extents[block, 2] > cut)
    middles = (extents[:, 1] + extents[:, 3]) / 2
    rest = block[~across]
    top = -np.inf
    for line in sorted(block[across].tolist(), key=lambda index: float(middles[index])):
        yield from _without_edges(extents, rest[(middles[rest] > top) & (middles[rest] <= middles[line])])
        yield np.array([line])
        top = middles[line]
    yield from _without_edges(extents, rest[middles[rest] > top])


def _without_edges(extents: FloatArray, band: Any) -> Iterator[Any]:
    """A band, parted from a first and a last row that stand well off the others."""
    rows = [np.array(row) for row in _rows(extents, band)]
    if len(rows) < 2:
        yield from rows
        return
    apart = _APART * float(np.median(extents[band, 3] - extents[band, 1]))
    first = extents[np.concatenate(rows[1:]), 1].min() - extents[rows[0], 3].max() >= apart
    last = extents[rows[-1], 1].min() - extents[np.concatenate(rows[:-1]), 3].max() >= apart
    if first:
        yield rows[0]
    if body := rows[1 if first else 0 : -1 if last else None]:
        yield np.concatenate(body)
    if last:
        yield rows[-1]


def _is_text(extents: FloatArray, side: Any) -> bool:
    """Whether one side of a gap is running text, and not a table's or a form's cells."""
    rows = list(_rows(extents, side))
    if len(rows) < _MIN_ROWS:
        return False
    widths = [extents[row, 2] - extents[row, 0] for row in rows]  # of the boxes of each row
    extent = float(extents[side, 2].max() - extents[side, 0].min())
    pitches = np.diff([float(extents[row, 1].min()) for row in rows])
    height = float(np.median(extents[side, 3] - extents[side, 1]))
    return bool(
        np.median([row.max() for row in widths]) >= _TEXT_WIDTH * height
        and np.mean([row.sum() for row in widths]) >= _TEXT_FILL * extent
        and np.median(pitches) <= _TEXT_PITCH * height
    )


def _rows(extents: FloatArray, block: Any) -> Iterator[list[int]]:
    """Rows from top to bottom, each from left to right; lines of a row overlap by half their height."""
    row: list[int] = []
    top = bottom = 0.0
    for index in sorted(block.tolist(), key=lambda i: float(extents[i, 1] + extents[i, 3])):
        low, high = extents[index, 1], extents[index, 3]
        if row and min(high, bottom) - max(low, top) >= min(high - low, bottom - top) / 2:
            row.append(index)
            continue
        if row:
            yield sorted(row, key=lambda i: float(extents[i, 0]))
        row, top, bottom = [index], low, high
    if row:
        yield sorted(row, key=lambda i: float(extents[i, 0]))
