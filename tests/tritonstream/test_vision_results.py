"""Results of vision models: what they say, draw and become."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tritonstream import (
    Classification,
    ClassScore,
    Detection,
    Detections,
    Embedding,
    Segmentation,
    UsageError,
)
from tritonstream._pictures import encoded, upright


def png(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def white(width: int, height: int) -> bytes:
    return png(Image.new("RGB", (width, height), "white"))


def thing(**changes: Any) -> Detection:
    values: dict[str, Any] = {"label": "cat", "class_id": 0, "score": 0.5, "box": (2.5, 1.0, 6.0, 4.0)}
    return Detection(**{**values, **changes})


def test_boxes_become_cocos() -> None:
    found = Detections((10, 8), (thing(class_id=15),))
    assert found.to_coco(7, categories={15: 17}) == [
        {"image_id": 7, "category_id": 17, "bbox": [2.5, 1.0, 3.5, 3.0], "score": 0.5}
    ]


def test_masks_become_run_lengths_column_by_column() -> None:
    # 2 × 3 pixels of a picture of 4 × 3; the mask begins at x = 1, y = 0
    mask = np.array([[255, 0], [255, 255]], np.uint8)
    found = Detections((4, 3), (thing(box=(1.0, 0.0, 3.0, 2.0), mask=png(Image.fromarray(mask))),))
    (row,) = found.to_coco()
    # columns of 3: 000 110 010 000
    assert row["segmentation"] == {"size": [3, 4], "counts": [3, 2, 2, 1, 4]}


def test_what_was_found_is_drawn_on_the_upright_picture() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    Image.new("RGB", (60, 100), "white").save(buffer, "JPEG", exif=exif.tobytes())
    found = Detections((100, 60), (thing(box=(10.0, 20.0, 90.0, 50.0)),), picture=buffer.getvalue())
    drawn = found.draw()
    assert drawn.size == (100, 60)
    assert drawn.getpixel((50, 50)) == (220, 30, 30)
    assert drawn.getpixel((95, 5)) == (255, 255, 255)


def test_a_classification_names_the_best() -> None:
    found = Classification(
        (8, 8), (ClassScore("猫", 3, 0.9), ClassScore("dog", 1, 0.1)), picture=white(80, 40)
    )
    assert found.best.label == "猫"
    assert json.loads(found.to_json())["classes"][0] == {"label": "猫", "class_id": 3, "score": 0.9}
    colours = {colour for _, colour in found.draw().getcolors(80 * 40)}
    assert (220, 30, 30) in colours


def test_a_mask_is_an_array_of_classes() -> None:
    mask = np.array([[0, 0, 1], [2, 2, 2]], np.uint8)
    found = Segmentation((3, 2), png(Image.fromarray(mask)), picture=white(3, 2))
    np.testing.assert_array_equal(found.classes, mask)
    assert json.loads(found.to_json())["pixels"] == {"0": 2, "1": 1, "2": 3}
    drawn = found.draw()
    assert drawn.getpixel((0, 0)) == (255, 255, 255)
    assert drawn.getpixel((2, 0)) != drawn.getpixel((0, 1)) != (255, 255, 255)


def test_embeddings_are_compared_by_their_angle() -> None:
    one, other = Embedding((1, 1), (3.0, 4.0)), Embedding((1, 1), (4.0, 3.0))
    assert one.similarity(other) == pytest.approx(24 / 25)  # (12 + 12) / (5 × 5)
    with pytest.raises(UsageError, match="2 and 1 numbers"):
        one.similarity(Embedding((1, 1), (1.0,)))


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "HSV", "LAB", "PA", "RGBa", "RGBX", "F", "I", "I;16", "1"])
def test_pillow_images_of_every_mode_can_be_sent(mode: str) -> None:
    sent = Image.open(io.BytesIO(encoded(Image.new(mode, (7, 5)))))
    sent.load()
    assert sent.size == (7, 5)


def test_pictures_are_drawn_as_models_see_them() -> None:
    deep = Image.fromarray(np.full((4, 4), 0x80FF, np.uint16))
    assert upright(encoded(deep)).getpixel((0, 0)) == (0x80, 0x80, 0x80)
    assert upright(encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 0)))).getpixel((0, 0)) == (255, 255, 255)
    with pytest.raises(UsageError, match="cannot be drawn on"):
        upright(b"no picture")
