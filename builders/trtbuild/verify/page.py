"""A page that is drawn to be read."""

from __future__ import annotations

import io

PAGE = (
    "trtbuild reads this page",
    "One repository, one server, one GPU:",
    "a language model that streams its answer,",
    "and a vision model beside it.",
    "Invoice 2026-0042 total 1,234.50 EUR",
)


def page_png() -> bytes:
    """A picture of ``PAGE``, with the font that Pillow brings."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (900, 90 + 70 * len(PAGE)), "white")
    pen = ImageDraw.Draw(image)
    for number, line in enumerate(PAGE):
        pen.text((50, 50 + 70 * number), line, fill="black", font=ImageFont.load_default(36))
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()
