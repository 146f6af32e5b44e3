"""What vision models found in a picture: plain frozen data that draws itself and becomes JSON or COCO."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._pictures import Picture, encoded, upright
from .errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Box = tuple[float, float, float, float]

# Told apart by their neighbours, too, where classes follow each other (Glasbey 2007, by eye).
_COLOURS = ((220, 30, 30), (20, 90, 220), (10, 150, 60), (240, 140, 0), (140, 40, 200), (0, 160, 170),
            (200, 40, 130), (120, 110, 20))  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Seen:
    """What all results know: ``size`` is width and height of the upright picture."""

    size: tuple[int, int]
    picture: bytes = field(default=b"", repr=False, compare=False, kw_only=True)  # as it was sent

    def _canvas(self, picture: Picture | None) -> Any:
        return upright(self.picture if picture is None else encoded(picture))


@dataclass(frozen=True, slots=True)
class ClassScore:
    """A class and how likely it is, 0 to 1. ``label`` is the class's number where it has no name."""

    label: str
    class_id: int
    score: float


@dataclass(frozen=True, slots=True)
class Classification(_Seen):
    """The likeliest classes of a picture, best first."""

    classes: tuple[ClassScore, ...] = ()

    @property
    def best(self) -> ClassScore:
        return self.classes[0]

    def to_json(self) -> str:
        """``{"size", "classes": [{"label", "class_id", "score"}]}``."""
        rows = [{"label": c.label, "class_id": c.class_id, "score": c.score} for c in self.classes]
        return json.dumps({"size": self.size, "classes": rows}, ensure_ascii=False)

    def draw(self, picture: Picture | None = None) -> Any:
        """The picture (default: the one that was sent) with its classes, as a Pillow image.

        Raises:
            UnsupportedError: without Pillow.
        """
        image = self._canvas(picture)
        for row, found in enumerate(self.classes):
            _write(image, (4, 4 + 18 * row), f"{found.label} {found.score:.2f}", _COLOURS[0])
        return image


@dataclass(frozen=True, slots=True)
class Detection:
    """A thing in a picture.

    Attributes:
        box: left, top, right, bottom in pixels of the upright picture.
        mask: a PNG as large as the box in whole pixels, 255 where the thing is; empty without masks.
    """

    label: str
    class_id: int
    score: float
    box: Box
    mask: bytes = field(default=b"", repr=False)

    @property
    def corner(self) -> tuple[int, int]:
        """The whole pixel at which ``mask`` begins."""
        return int(self.box[0]), int(self.box[1])


@dataclass(frozen=True, slots=True)
class Detections(_Seen):
    """The things in a picture, best first."""

    things: tuple[Detection, ...] = ()

    def to_json(self) -> str:
        """``{"size", "things": [{"label", "class_id", "score", "box"}]}``."""
        rows = [
            {"label": t.label, "class_id": t.class_id, "score": t.score, "box": t.box} for t in self.things
        ]
        return json.dumps({"size": self.size, "things": rows}, ensure_ascii=False)

    def to_coco(self, image_id: int = 0, categories: Mapping[int, int] | None = None) -> list[dict[str, Any]]:
        """COCO's results format (cocodataset.org, "format-results"): boxes as x, y, width and height, and
        masks as uncompressed run lengths.

        Args:
            categories: class → category where they differ; COCO itself numbers its 80 from 1 to 90.
        """
        rows = []
        for thing in self.things:
            left, top, right, bottom = thing.box
            row: dict[str, Any] = {
                "image_id": image_id,
                "category_id": (categories or {}).get(thing.class_id, thing.class_id),
                "bbox": [left, top, right - left, bottom - top],
                "score": thing.score,
            }
            if thing.mask:
                row["segmentation"] = {"size": [self.size[1], self.size[0]], "counts": self._runs(thing)}
            rows.append(row)
        return rows

    def draw(self, picture: Picture | None = None) -> Any:
        """The picture (default: the one that was sent) with boxes, labels and masks, as a Pillow image.

        Raises:
            UnsupportedError: without Pillow.
        """
        image = self._canvas(picture)
        from PIL import Image, ImageDraw

        pen = ImageDraw.Draw(image)
        width = max(1, max(image.size) // 400)
        for thing in reversed(self.things):
            colour = _COLOURS[thing.class_id % len(_COLOURS)]
            if thing.mask:
                half = Image.open(io.BytesIO(thing.mask)).point(lambda value: value // 2)
                image.paste(colour, thing.corner, half)
            pen.rectangle(thing.box, outline=colour, width=width)
            _write(
                image,
                (thing.box[0] + width, thing.box[1] + width),
                f"{thing.label} {thing.score:.2f}",
                colour,
            )
        return image

    def _runs(self, thing: Detection) -> list[int]:
        """Lengths of runs of 0 and 1 in turns, column by column, 0 first."""
        import numpy as np

        mask = _pixels(thing.mask) > 0
        full = np.zeros((self.size[1], self.size[0]), bool)
        x, y = thing.corner
        part = full[y : y + mask.shape[0], x : x + mask.shape[1]]
        part[:] = mask[: part.shape[0], : part.shape[1]]
        flat = full.ravel(order="F")
        edges = np.flatnonzero(np.diff(flat)) + 1
        runs = np.diff(np.concatenate([[0], edges, [len(flat)]])).tolist()
        return [0, *runs] if len(flat) and flat[0] else runs


@dataclass(frozen=True, slots=True)
class Segmentation(_Seen):
    """A class for every pixel of a picture.

    ``mask`` is a grey PNG of the upright picture's size, 8 or 16 bits, whose values are classes; the highest
    value (255 or 65535) is where the network did not look.
    """

    mask: bytes = field(default=b"", repr=False)

    @property
    def classes(self) -> Array:
        """The mask as integers [height, width].

        Raises:
            UnsupportedError: without Pillow.
        """
        return _pixels(self.mask)

    def to_json(self) -> str:
        """``{"size", "pixels": {class: count}}``."""
        import numpy as np

        classes, counts = np.unique(self.classes, return_counts=True)
        return json.dumps(
            {"size": self.size, "pixels": {str(c): int(n) for c, n in zip(classes, counts, strict=True)}}
        )

    def draw(self, picture: Picture | None = None) -> Any:
        """The picture (default: the one that was sent) with its classes laid over, as a Pillow image; class 0
        stays clear.

        Raises:
            UnsupportedError: without Pillow.
        """
        import numpy as np

        image = self._canvas(picture)
        from PIL import Image

        classes = self.classes
        palette = np.array([(0, 0, 0), *_COLOURS], np.uint8)
        shown = np.where(classes == 0, 0, 1 + (classes.astype(int) - 1) % len(_COLOURS))
        image.paste(
            Image.fromarray(palette[shown]), (0, 0), Image.fromarray((classes > 0).astype(np.uint8) * 128)
        )
        return image


@dataclass(frozen=True, slots=True)
class Embedding(_Seen):
    """A picture as a vector."""

    values: tuple[float, ...] = field(default=(), repr=False)

    def similarity(self, other: Embedding) -> float:
        """Cosine of the angle between two pictures' vectors.

        Raises:
            UsageError: they are of different models.
        """
        if len(self.values) != len(other.values):
            raise UsageError(
                f"vectors of {len(self.values)} and {len(other.values)} numbers cannot be compared"
            )
        dot = sum(a * b for a, b in zip(self.values, other.values, strict=True))
        lengths = [sum(value * value for value in seen.values) ** 0.5 for seen in (self, other)]
        return dot / (lengths[0] * lengths[1]) if all(lengths) else 0.0

    def to_json(self) -> str:
        """``{"size", "embedding"}``."""
        return json.dumps({"size": self.size, "embedding": self.values})


def _pixels(png: bytes) -> Array:
    import numpy as np

    from .errors import UnsupportedError

    try:
        from PIL import Image
    except ImportError as exc:
        raise UnsupportedError("masks need Pillow: pip install Pillow") from exc
    return np.asarray(Image.open(io.BytesIO(png)))


def _write(image: Any, at: tuple[float, float], text: str, colour: tuple[int, int, int]) -> None:
    """White letters on the colour."""
    from PIL import ImageDraw, ImageFont

    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(max(12, max(image.size) // 60))
    try:
        pen.rectangle(pen.textbbox(at, text, font=font), fill=colour)
        pen.text(at, text, fill="white", font=font)
    except UnicodeEncodeError:  # the bitmap font of a Pillow without FreeType
        pen.text(at, text.encode("latin-1", "replace"), fill="white", font=font)
