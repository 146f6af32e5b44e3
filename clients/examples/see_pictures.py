"""Boxes of many pictures at once: bad ones are told, good ones drawn, all written in COCO's format."""

import json
import sys
from pathlib import Path

from tritonstream import Client, Detections, TritonStreamError


def main(folder: str, url: str = "127.0.0.1:8001", model: str = "yolov3-tiny") -> None:
    pictures = sorted(
        path
        for path in Path(folder).iterdir()
        if path.suffix.lower() in {".jpg", ".jpeg", ".png", ".webp"} and not path.stem.endswith(".boxes")
    )
    rows = []
    with Client(url) as client:
        for number, (path, found) in enumerate(
            zip(pictures, client.detect(model, pictures, return_errors=True), strict=True)
        ):
            if not isinstance(found, Detections):
                print(f"{path.name}: {found}")
                continue
            print(f"{path.name}: {', '.join(thing.label for thing in found.things) or 'nothing'}")
            found.draw().save(path.with_suffix(".boxes.png"))
            rows += found.to_coco(number)
    Path(folder, "boxes.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: see_pictures.py FOLDER [HOST:PORT] [MODEL]")
    try:
        main(*sys.argv[1:])
    except (OSError, TritonStreamError) as error:
        sys.exit(f"error: {error}")
