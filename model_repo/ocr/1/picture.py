"""Encoded bytes to an upright RGB picture, or a reason why not.

Sizes are checked from the header, before any pixel is decoded, so that a decompression bomb costs nothing.
"""

from __future__ import annotations

import codecs
import io
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageOps

# A closed list: Pillow would also start Ghostscript for EPS and read formats nobody sends on purpose.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
_BEGINNINGS = (  # where, what, which format: to say what was sent
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG", "PNG"),
    (8, b"WEBP", "WEBP"),
    (0, b"GIF8", "GIF"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (4, b"ftypavi", "AVIF"),  # brands avif and avis
    (4, b"ftyphe", "HEIC"),  # heic, heix, hevc
    (4, b"ftypmif1", "HEIC"),
    (4, b"ftypmsf1", "HEIC"),
    (4, b"ftyp", "a video"),  # MP4 and its kin: any other brand
    (4, b"JXL ", "JPEG XL"),
    (4, b"jP  ", "JPEG 2000"),
    (0, b"%PDF", "PDF"),
    (0, b"8BPS", "PSD"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"data:", "a data URL"),
    (0, b"/9j/", "base64 text"),  # of a JPEG, of a PNG, of a WebP
    (0, b"iVBORw0KGgo", "base64 text"),
    (0, b"UklGR", "base64 text"),
)
_EXIF_ORIENTATION = 0x0112
_UPRIGHT = {  # EXIF 2.32, tag 0x0112 → what sets the picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

Image.MAX_IMAGE_PIXELS = None  # decode() has its own limit, with its own message


class PictureError(ValueError):
    """The bytes are no picture that this model reads; the message is for the caller."""


@dataclass(frozen=True)
class Picture:
    """An upright RGB picture.

    ``image`` may be smaller than the picture that was sent; ``width`` and ``height`` are the pixels of
    the upright original, in which boxes are given.
    """

    image: Image.Image
    width: int
    height: int


def decode(data: bytes, *, max_pixels: int, working_pixels: int, legible: bool = False) -> Picture:
    """Decodes a JPEG, PNG, WebP, GIF (first frame), BMP or TIFF.

    EXIF orientation is applied, transparency laid on white, and every colour mode turned into RGB; of 16 bits
    a sample the upper eight are kept.

    Args:
        data: the encoded file.
        max_pixels: larger pictures are refused before they are decoded.
        working_pixels: larger pictures are reduced to about this many pixels.
        legible: what is drawn shall be seen: light ink is laid on black, and more than 8 bits a sample are
            stretched from the darkest to the lightest.

    Raises:
        PictureError: for bytes that are empty, broken, truncated, of another format, or too large.
    """
    if not data:
        raise PictureError("the picture is empty (0 bytes)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # damaged metadata of a readable picture is not the caller's business
        image = _open(data)
        width, height = image.size
        if width * height > max_pixels:
            raise PictureError(
                f"the picture has {width} x {height} = {width * height:,} pixels; "
                f"this model reads up to {max_pixels:,}"
            )
        try:
            size = _fit(width, height, working_pixels)
            image.draft(None, size)  # a JPEG is then decoded at a half, a quarter or an eighth of its size
            image.load()
            if image.format == "TIFF":  # Pillow has set it upright already
                (width, height), size = image.size, _fit(*image.size, working_pixels)
            orientation = _orientation(image)
            image = _rgb(image, legible)
        except (
            Exception
        ) as error:  # plugins let through whatever they ran into: OSError, SyntaxError, struct.error, …
            raise PictureError(f"the picture cannot be decoded: {error}") from error
    if image.width * image.height > working_pixels:
        image = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
    if orientation in _UPRIGHT:
        image = image.transpose(_UPRIGHT[orientation])
    if orientation >= 5:  # turned by a quarter
        width, height = height, width
    return Picture(image, width, height)


def framed(image: Image.Image, border: int) -> Image.Image:
    """The picture with ``border`` pixels around it, in the median colour of its own edge."""
    if border == 0:
        return image
    pixels = np.asarray(image)
    edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    red, green, blue = np.median(edge, axis=0).astype(int).tolist()
    return ImageOps.expand(image, border, (red, green, blue))


def _open(data: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception as error:
        raise PictureError(_unreadable(data)) from error


def _unreadable(data: bytes) -> str:
    found = next((name for at, magic, name in _BEGINNINGS if data.startswith(magic, at)), None)
    known = ", ".join(FORMATS)
    text = _beginning(data) if found is None else ""
    if "<svg" in text:
        found = "SVG"
    if found in FORMATS:
        return f"the {len(data):,} bytes begin as {found} does, but the file is damaged or cut short"
    if found is not None:
        return f"the {len(data):,} bytes are {found}; this model reads the bytes of {known}"
    but = f" but text: {text[:60]!r}" if text else ""
    return f"the {len(data):,} bytes are no picture of a known format ({known}){but}"


def _beginning(data: bytes) -> str:
    """The first characters, where they are text: a page of HTML, JSON, a path. Else nothing."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data[:1000])
    except UnicodeDecodeError:
        return ""
    line = " ".join(text.split())
    return line if line.isprintable() else ""


def _orientation(image: Image.Image) -> int:
    try:
        value: Any = image.getexif().get(_EXIF_ORIENTATION, 1)
        return int(value) if 1 <= int(value) <= 8 else 1
    except Exception:  # a picture with broken EXIF is shown as it is stored, as viewers do
        return 1


def _fit(width: int, height: int, pixels: int) -> tuple[int, int]:
    scale = min(1.0, math.sqrt(pixels / (width * height)))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _rgb(image: Image.Image, legible: bool) -> Image.Image:
    if image.mode.startswith(("I", "F")):  # 16 or 32 bits a sample: Pillow's own conversion would clip at 255
        return Image.fromarray(_to_8_bits(np.asarray(image), stretched=legible)).convert("RGB")
    if image.mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info:
        with_alpha = image if image.mode == "RGBA" else image.convert("RGBA")
        alpha = with_alpha.getchannel("A")
        flat = Image.new("RGB", image.size, _paper(with_alpha, alpha) if legible else "white")
        flat.paste(with_alpha, mask=alpha)
        return flat
    return image if image.mode == "RGB" else image.convert("RGB")


def _paper(image: Image.Image, alpha: Image.Image) -> str:
    """White behind dark ink, black behind light ink: what is drawn shall be seen."""
    covered = alpha.histogram()
    if sum(covered[128:]) == 0 or sum(covered[:128]) == 0:
        return "white"
    ink = image.convert("L").histogram(alpha.point(lambda value: 255 if value >= 128 else 0))
    mean = sum(level * count for level, count in enumerate(ink)) / sum(ink)
    return "black" if mean > 160 else "white"


def _to_8_bits(samples: np.ndarray[Any, Any], *, stretched: bool) -> np.ndarray[Any, Any]:
    if samples.dtype.kind in "iu" and not stretched and samples.min() >= 0 and samples.max() <= 0xFFFF:
        return (samples >> 8).astype(np.uint8)
    values = samples.astype(np.float32)
    np.nan_to_num(values, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    low, high = min(0.0, float(values.min())), float(values.max())
    values -= low
    values *= 255.0 / max(high - low, 1e-6)
    return values.astype(np.uint8)
