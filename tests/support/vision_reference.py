"""The plain way to the answers of a vision model: Pillow and onnxruntime, one picture after the other.

Written from the formats' descriptions without the project's code, and run in a process of its own:
python -m tests.support.vision_reference TASK MODEL SETTINGS < pictures (pickled) > answers (JSON)
"""

from __future__ import annotations

import io
import json
import math
import sys
from typing import Any

import numpy as np
from PIL import Image, ImageOps

Image.MAX_IMAGE_PIXELS = None


def upright(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    if image.format != "TIFF":
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) // 256).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        clear = image.convert("RGBA")
        paper = Image.new("RGB", image.size, "white")
        paper.paste(clear, mask=clear.getchannel("A"))
        return paper
    return image.convert("RGB")


def classify(session: Any, data: bytes, labels: int) -> dict[str, Any]:
    """EfficientNet-Lite0: shorter side to 256, the middle 224, (value - 127) / 128."""
    image = upright(data)
    scale = 256 / min(image.size)
    size = (max(224, round(image.width * scale)), max(224, round(image.height * scale)))
    whole = image.resize(size, Image.Resampling.BICUBIC)
    left, top = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
    pixels = np.asarray(whole.crop((left, top, left + 224, top + 224)), np.float32)
    (logits,) = session.run(None, {"images": ((pixels - 127) / 128).transpose(2, 0, 1)[np.newaxis]})
    shifted = np.exp(logits[0] - logits[0].max())
    probabilities = shifted / shifted.sum()
    return {"size": image.size, "scores": probabilities.tolist()}


ANCHORS = {26: ((10, 14), (23, 27), (37, 58)), 13: ((81, 82), (135, 169), (344, 319))}


def detect(session: Any, data: bytes, labels: int) -> dict[str, Any]:
    """YOLOv3-tiny: letterboxed to 416 on 128, a value from 0 to 1, each cell decoded, then suppressed."""
    image = upright(data)
    scale = min(416 / image.width, 416 / image.height)
    size = (min(416, max(1, round(image.width * scale))), min(416, max(1, round(image.height * scale))))
    left, top = (416 - size[0]) // 2, (416 - size[1]) // 2
    canvas = Image.new("RGB", (416, 416), (128, 128, 128))
    canvas.paste(image.resize(size, Image.Resampling.BILINEAR), (left, top))
    pixels = (np.asarray(canvas, np.float32) / 255).transpose(2, 0, 1)[np.newaxis]
    found = []
    for grid in session.run(None, {"image": pixels}):
        side = grid.shape[-1]
        cells = grid[0].reshape(3, 85, side, side)
        for anchor, (width, height) in enumerate(ANCHORS[side]):
            for y, x in zip(*np.nonzero(cells[anchor, 4] > -1.2), strict=True):  # sigmoid(-1.2) < 0.25
                row = cells[anchor, :, y, x].astype(float)
                number = int(row[5:].argmax())
                score = sigmoid(row[4]) * sigmoid(row[5 + number])
                if score >= 0.25:
                    cx, cy = (sigmoid(row[0]) + x) * 416 / side, (sigmoid(row[1]) + y) * 416 / side
                    w, h = math.exp(row[2]) * width, math.exp(row[3]) * height
                    found.append((score, number, (cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)))
    kept: list[Any] = []
    for score, number, box in sorted(found, key=lambda item: -item[0]):
        if all(number != other or overlap(box, one) <= 0.45 for _, other, one in kept):
            kept.append((score, number, box))
    things = []
    for score, number, (x1, y1, x2, y2) in kept:
        along, down = size[0] / image.width, size[1] / image.height
        box = [
            min(max((x1 - left) / along, 0), image.width),
            min(max((y1 - top) / down, 0), image.height),
            min(max((x2 - left) / along, 0), image.width),
            min(max((y2 - top) / down, 0), image.height),
        ]
        if box[2] > box[0] and box[3] > box[1]:
            things.append({"score": score, "class_id": number, "box": box})
    return {"size": image.size, "things": things}


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def overlap(one: Any, other: Any) -> float:
    shared = max(0.0, min(one[2], other[2]) - max(one[0], other[0])) * max(
        0.0, min(one[3], other[3]) - max(one[1], other[1])
    )
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return shared / (sum(areas) - shared) if shared else 0.0


def main(task: str, model: str) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    answer = {"classify": classify, "detect": detect}[task]
    data = sys.stdin.buffer.read()
    answers, at = [], 0
    while at < len(data):  # four bytes of length, then the picture
        size = int.from_bytes(data[at : at + 4], "big")
        answers.append(answer(session, data[at + 4 : at + 4 + size], 0))
        at += 4 + size
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
