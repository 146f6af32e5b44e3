"""Masks in the size of the picture, as PNG files: small, of any size, and readable by everything."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from .scores import sigmoid
from .settings import Settings

_VOID_8, _VOID_16 = 0xFF, 0xFFFF  # what the network did not see


def class_maps(output: Any, settings: Settings) -> Any:
    """Classes [n, rows, columns] of scores [n, classes, rows, columns] or [n, rows, columns, classes], or of
    classes themselves."""
    if output.ndim == 3:
        return output
    if not _is_map(output.shape[2:], settings) and _is_map(output.shape[1:3], settings):
        output = output.transpose(0, 3, 1, 2)
    if output.shape[1] == 1 and output.dtype.kind in "iu":
        return output[:, 0]
    if output.shape[1] == 1:
        values = sigmoid(output[:, 0]) if settings.activation == "sigmoid" else output[:, 0]
        return (values >= 0.5).astype(np.int64)
    return output.argmax(axis=1)


def _is_map(sides: Any, settings: Settings) -> bool:
    """Whether rows and columns are in the proportions of the network's picture."""
    rows, columns = sides
    return bool(rows * settings.width == columns * settings.height)


def class_png(classes: Any, geometry: Any, settings: Settings) -> bytes:
    """A class a pixel of the picture: 8 bits grey, or 16 where there are 255 classes or more. Pixels that lie
    outside of what the network saw have the highest value.

    Args:
        classes: [rows, columns] of the network.
        geometry: [6], see `vision_preprocess`.
    """
    wide = settings.classes >= _VOID_8 or int(classes.max(initial=0)) >= _VOID_8
    kind, void = (np.uint16, _VOID_16) if wide else (np.uint8, _VOID_8)
    scale_x, scale_y, shift_x, shift_y, width, height = (float(value) for value in geometry)
    rows = _places(round(height), scale_y, shift_y, settings.height, classes.shape[0])
    columns = _places(round(width), scale_x, shift_x, settings.width, classes.shape[1])
    full = np.full((len(rows), len(columns)), void, kind)
    seen_rows, seen_columns = rows >= 0, columns >= 0
    # A byte or two a pixel: of 64-bit classes it would be eight.
    full[np.ix_(seen_rows, seen_columns)] = classes.astype(kind)[rows[seen_rows]][:, columns[seen_columns]]
    return _png(Image.fromarray(full))


def _places(length: int, scale: float, shift: float, seen: int, cells: int) -> Any:
    """The network's cell for each pixel of a picture's side; -1 outside."""
    at = (np.arange(length) + 0.5) * scale + shift
    cell = np.floor(at * (cells / seen)).astype(np.int64)
    return np.where((at >= 0) & (at < seen), np.clip(cell, 0, cells - 1), -1)


def instance_png(prototypes: Any, weights: Any, corners: Any, box: Any, settings: Settings) -> bytes:
    """The mask of one box: 255 where the thing is, as large as the box in whole pixels of the picture.

    Args:
        prototypes: [masks, rows, columns]; weights: [masks], of this box (Bolya et al. 2019).
        corners: [4], the box in pixels of the network's picture.
        box: [4], the same in pixels of the upright picture.
    """
    scores = np.tensordot(np.asarray(weights, np.float32), np.asarray(prototypes, np.float32), axes=1)
    rows, columns = scores.shape
    x, y = columns / settings.width, rows / settings.height
    left, top, right, bottom = (float(value) for value in corners)
    low, high = (max(0.0, left * x), max(0.0, top * y)), (min(columns, right * x), min(rows, bottom * y))
    size = pixel_size(box)
    enlarged = Image.fromarray(scores).resize(size, Image.Resampling.BILINEAR, box=(*low, *high))
    return _png(Image.fromarray((np.asarray(enlarged) > 0).astype(np.uint8) * np.uint8(255)))


def pixel_size(box: Any) -> tuple[int, int]:
    """Width and height of a box in whole pixels."""
    left, top, right, bottom = (float(value) for value in box)
    width, height = np.ceil(right) - np.floor(left), np.ceil(bottom) - np.floor(top)
    return max(1, int(width)), max(1, int(height))


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
