"""Pages drawn for tests, pictures that packages carry, and how well they are read.

Fonts and pictures come from ``cvttf-notosanscjk-regular`` (Noto Sans CJK, OFL) and ``scikit-image``, both
installed without their dependencies.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

ENGLISH = (
    "The plan is the only place where numbers are decided. Engine flags, server",
    "configurations, launch lines and client defaults are all read from it, so that",
    "they cannot disagree. Memory is planned in bytes for every item: weights per",
    "instance, activations, buffers, the key and value pool, contexts, scratch space",
    "for decoding, shared memory, host memory and a margin for safety. Every rule",
    "that can be known before compiling is checked first. Prices rose by 3.7% to",
    "$1,250.00 (see page 42); write to info@example.org before 31 December.",
)
CHINESE = (
    "今天我们讨论如何在一台服务器上同时运行语言模型和图像识别模型。",
    "首先需要计算显存的使用量,包括权重、激活值和缓存。",
    "其次要考虑并发请求的数量以及每个请求的最大长度。",
    "北京市海淀区中关村大街一号,邮政编码一零零零八零。",
    "如果图片无法解码,服务器应当返回清楚的错误信息。",
)
# Two columns.
HALVES = (
    (
        "The plan is the only place",
        "where numbers are decided.",
        "Engine flags, configurations,",
        "launch lines and defaults",
    ),
    (
        "are all read from it, so that",
        "they cannot disagree. Memory",
        "is planned in bytes for every",
        "item: weights, buffers, pools.",
    ),
)
# skimage/data/page.png: the lines that are whole (the one at the foot is cut).
PAGE_PNG = (
    "Region-based segmentation",
    "Let us first determine markers of the coins and the",
    "background. These markers are pixels that we can label",
    "unambiguously as either object or background. Here,",
    "the markers are found at the two extreme parts of the",
    "histogram of grey values:",
    "markers = np.zeros_like(coins)",
)


def packaged(distribution: str, ending: str) -> Path:
    """A file of an installed distribution; the test is skipped where it is not installed."""
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs the files of {distribution}: pip install --no-deps {distribution}")
    return next(Path(str(file.locate())) for file in files if str(file).endswith(ending))


def page_png() -> bytes:
    return packaged("scikit-image", "skimage/data/page.png").read_bytes()


@lru_cache
def font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(packaged("cvttf-notosanscjk-regular", ".otf")), size)


def draw(
    lines: Sequence[str], *, size: int = 24, ink: str = "black", paper: str = "white", margin: int = 40
) -> Image.Image:
    """One column of text."""
    face, pitch = font(size), round(1.5 * size)
    width = round(max(face.getlength(line) for line in lines)) + 2 * margin
    page = Image.new("RGB", (width, pitch * len(lines) + 2 * margin), paper)
    pen = ImageDraw.Draw(page)
    for row, line in enumerate(lines):
        pen.text((margin, margin + row * pitch), line, font=face, fill=ink)
    return page


def side_by_side(columns: Sequence[Image.Image]) -> Image.Image:
    page = Image.new(
        "RGB", (sum(item.width for item in columns), max(item.height for item in columns)), "white"
    )
    left = 0
    for item in columns:
        page.paste(item, (left, 0))
        left += item.width
    return page


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def error_rate(expected: Sequence[str], read: Sequence[str]) -> float:
    """Character error rate: edits from what was read to what was written, by the length of the latter."""
    wanted, found = " ".join(expected), " ".join(read)
    row = list(range(len(found) + 1))
    for i, character in enumerate(wanted, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(found, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (character != other))
    return row[-1] / len(wanted)
