"""A page of text as a picture, for loads that name none."""

from __future__ import annotations

import io

_LINES = (
    "Invoice 2026-0042",
    "Item                 Amount   Price",
    "Inference server          1   1,234.50",
    "Cables                   12      86.40",
    "Installation              3     450.00",
    "Total                         1,770.90 EUR",
    "Payable within thirty days of receipt.",
)


def drawn_page(width: int = 900, height: int = 620) -> bytes:
    """PNG of a short invoice, in the font that Pillow brings; always the same bytes."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(image)
    for number, line in enumerate(_LINES):
        pen.text((50, 50 + 75 * number), line, fill="black", font=ImageFont.load_default(32))
    stored = io.BytesIO()
    image.save(stored, "PNG")
    return stored.getvalue()
