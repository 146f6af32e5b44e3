"""Pictures of odd sizes, modes and orientations, always the same ones for a seed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

_MODES = ("RGB", "L", "RGBA", "P", "LA", "CMYK", "I;16", "1")
_FORMATS = {"RGB": ("JPEG", "PNG", "WEBP", "BMP", "TIFF"), "L": ("JPEG", "PNG"), "CMYK": ("JPEG", "TIFF")}


def odd_pictures(count: int, seed: int = 7) -> Iterator[bytes]:
    """Encoded pictures from 1 × 1 to some hundred pixels, strips among them, in every mode of the formats."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        width, height = (int(side) for side in rng.integers(1, 400, 2))
        if number % 10 == 0:
            width, height = (1, 1) if number % 20 else (int(rng.integers(500, 900)), int(rng.integers(1, 6)))
        image = _scene(rng, width, height)
        mode = _MODES[number % len(_MODES)]
        kinds = _FORMATS.get(mode, ("PNG",))
        yield _encoded(rng, image, mode, kinds[number // len(_MODES) % len(kinds)])


def _scene(rng: Any, width: int, height: int) -> Image.Image:
    shade = (
        np.linspace(0, 255, width)[None, :, None] * rng.random(3) + np.linspace(0, 99, height)[:, None, None]
    )
    image = Image.fromarray(np.clip(shade + rng.normal(0, 8, (height, width, 3)), 0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for _ in range(4):
        x, y = int(rng.integers(-20, width)), int(rng.integers(-20, height))
        size = int(rng.integers(4, 90))
        pen.ellipse((x, y, x + size, y + size), fill=tuple(int(value) for value in rng.integers(0, 256, 3)))
    return image


def _encoded(rng: Any, image: Image.Image, mode: str, kind: str) -> bytes:
    buffer = io.BytesIO()
    if mode == "I;16":
        grey = np.asarray(image.convert("L")).astype(np.uint16) * 257
        Image.fromarray(grey).save(buffer, "PNG")
        return buffer.getvalue()
    options: dict[str, Any] = {}
    if kind in ("JPEG", "PNG", "WEBP"):
        exif = Image.Exif()
        exif[0x0112] = int(rng.integers(1, 9))
        options["exif"] = exif.tobytes()
    converted = image.convert(mode)
    if mode in ("RGBA", "LA"):
        converted.putalpha(Image.fromarray(rng.integers(0, 256, (image.height, image.width), dtype=np.uint8)))
    converted.save(buffer, kind, **options)
    return buffer.getvalue()
