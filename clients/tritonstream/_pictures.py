"""Pictures in the forms that people have them in → encoded bytes, as servers take them."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Union

from .errors import UnsupportedError, UsageError

Picture = Union[bytes, bytearray, memoryview, str, "os.PathLike[str]", Any]
"""Encoded bytes (JPEG, PNG, WebP, BMP, TIFF, GIF), a path, a uint8 array [h, w], [h, w, 3] or [h, w, 4] (RGB,
RGBA), or a Pillow image."""


def encoded(picture: Picture) -> bytes:
    """Returns a picture's encoded bytes; arrays and Pillow images become PNG, which loses nothing.

    Raises:
        UsageError: for anything else, and for empty or unreadable pictures.
    """
    if isinstance(picture, (bytes, bytearray, memoryview)):
        data = bytes(picture)
    elif isinstance(picture, (str, os.PathLike)):
        try:
            data = Path(picture).read_bytes()
        except OSError as exc:
            raise UsageError(f"the picture cannot be read: {exc}") from exc
    elif hasattr(picture, "__array_interface__") and hasattr(picture, "dtype"):
        return _png(picture)
    elif hasattr(picture, "save") and hasattr(picture, "mode"):
        data = _saved(picture)
    else:
        raise UsageError(f"a {type(picture).__name__} is no picture; give encoded bytes, a path or an array")
    if not data:
        raise UsageError("the picture is empty")
    return data


def upright(data: bytes) -> Any:
    """An encoded picture as an RGB Pillow image, its EXIF orientation applied: what boxes refer to.

    Transparency is laid on white, and of 16 bits a sample the upper eight are shown, as models see it.

    Raises:
        UnsupportedError: without Pillow.
        UsageError: Pillow cannot read it.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as exc:
        raise UnsupportedError("drawing and masks need Pillow: pip install Pillow") from exc
    try:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    except (OSError, SyntaxError) as exc:
        raise UsageError(f"the picture cannot be drawn on: {exc}") from exc
    if image.mode.startswith("I"):
        image = image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    if image.mode in _SEE_THROUGH or "transparency" in image.info:
        clear = image.convert("RGBA")
        image = Image.new("RGB", image.size, "white")
        image.paste(clear, mask=clear.getchannel("A"))
    return image.convert("RGB")


def _saved(image: Any) -> bytes:
    """A Pillow image as PNG; of modes that PNG has not as TIFF (numbers) or in the colours they show."""
    kind = "TIFF" if image.mode in ("I", "F") else "PNG"
    if kind == "PNG" and image.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        image = image.convert("RGBA" if image.mode in _SEE_THROUGH else "RGB")
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


_SEE_THROUGH = ("RGBA", "RGBa", "LA", "La", "PA")  # Pillow's modes with alpha
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # channels → PNG colour type (PNG specification, 11.2.2)


def _png(array: Any) -> bytes:
    if array.ndim == 2:
        array = array[:, :, None]
    if (
        array.ndim != 3
        or array.shape[2] not in _COLOUR_TYPES
        or str(array.dtype) != "uint8"
        or not array.size
    ):
        raise UsageError(
            f"an array of {array.dtype} {list(array.shape)} is no picture; "
            "give uint8 [h, w], [h, w, 3] or [h, w, 4]"
        )
    height, width, channels = array.shape
    rows = b"".join(b"\0" + array[row].tobytes() for row in range(height))  # 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
