"""What an OCR model found in a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ._pictures import Picture, encoded, upright
from .errors import ProtocolError

Point = tuple[float, float]
Box = tuple[Point, Point, Point, Point]


@dataclass(frozen=True, slots=True)
class OcrLine:
    """A line of text.

    Attributes:
        text: what it says.
        score: mean confidence of its characters, 0 to 1.
        box: corners (x, y), clockwise from the top left of the text, in pixels of the upright picture.
    """

    text: str
    score: float
    box: Box


@dataclass(frozen=True, slots=True)
class OcrResult:
    """The lines of a picture in reading order."""

    lines: tuple[OcrLine, ...]
    picture: bytes = field(default=b"", repr=False, compare=False)  # as it was sent

    @property
    def text(self) -> str:
        """The lines, one below the other."""
        return "\n".join(line.text for line in self.lines)

    def to_json(self) -> str:
        """``{"lines": [{"text", "score", "box"}]}``."""
        lines = [{"text": line.text, "score": line.score, "box": line.box} for line in self.lines]
        return json.dumps({"lines": lines}, ensure_ascii=False)

    def draw(self, picture: Picture | None = None) -> Any:
        """The picture (default: the one that was read), upright, with its boxes
        numbered in reading order, as a Pillow image.

        Raises:
            UnsupportedError: without Pillow.
        """
        image = upright(self.picture if picture is None else encoded(picture))
        from PIL import ImageDraw

        pen = ImageDraw.Draw(image)
        width = max(1, max(image.size) // 500)
        for number, line in enumerate(self.lines, start=1):
            pen.line([*line.box, line.box[0]], fill=(220, 30, 30), width=width)
            pen.text(line.box[0], str(number), fill=(20, 60, 220))
        return image


def ocr_result(outputs: Mapping[str, Any], picture: bytes) -> OcrResult:
    """Reads an OCR model's outputs: text BYTES [n], score FP32 [n], box FP32 [n, 4, 2].

    Raises:
        ProtocolError: if they do not fit together.
    """
    try:
        texts, scores, boxes = (
            outputs["text"].ravel(),
            outputs["score"].ravel(),
            outputs["box"].reshape(-1, 4, 2),
        )
    except (KeyError, ValueError) as exc:
        raise ProtocolError(f"the answer of the OCR model lacks a part or has a wrong shape: {exc}") from exc
    if not len(texts) == len(scores) == len(boxes):
        raise ProtocolError(
            f"the OCR model sent {len(texts)} texts, {len(scores)} scores and {len(boxes)} boxes"
        )
    return OcrResult(
        tuple(
            OcrLine(text.decode("utf-8", "replace"), float(score), _box(box))
            for text, score, box in zip(texts, scores, boxes, strict=True)
        ),
        picture,
    )


def _box(corners: Sequence[Sequence[float]]) -> Box:
    return cast(Box, tuple((float(x), float(y)) for x, y in corners))
