"""``trtbuild ocr PICTURE``: the lines of text in a picture, as words, JSON, or boxes drawn on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtbuild.cli.connection import connect, server_options
from trtbuild.cli.console import note, print_json
from trtbuild.errors import ServeError

if TYPE_CHECKING:
    from tritonstream import OcrResult


@click.command("ocr")
@click.argument("picture", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@server_options
@click.option("--json", "as_json", is_flag=True, help="Lines with boxes and scores, as JSON.")
@click.option(
    "--draw", type=click.Path(path_type=Path), metavar="FILE", help="Write the picture with its boxes."
)
def ocr_command(
    picture: Path, model: str | None, repo: Path | None, url: str | None, as_json: bool, draw: Path | None
) -> None:
    """Read the text of PICTURE (JPEG, PNG, WebP), line by line in reading order."""
    with connect(repo, url) as server:
        result = server.client.ocr(server.model(model, "vision"), picture)
    if draw is not None:
        draw_boxes(picture, result, draw)
    if as_json:
        print_json(
            {
                "picture": str(picture),
                "lines": [{"text": line.text, "score": line.score, "box": line.box} for line in result.lines],
            }
        )
        return
    for line in result.lines:
        click.echo(line.text)
    if not result.lines:
        note("no text was found")


def draw_boxes(picture: Path, result: OcrResult, target: Path) -> None:
    """Writes the upright picture with each line's box, numbered in reading order.

    Raises:
        ServeError: Pillow is not installed, or the file name's ending is of no picture format.
    """
    try:
        from PIL import Image, ImageDraw, ImageOps
    except ImportError as error:
        raise ServeError("--draw needs Pillow", "run: pip install 'trtbuild[local]'") from error
    with Image.open(picture) as opened:
        image = ImageOps.exif_transpose(opened).convert("RGB")
    pen = ImageDraw.Draw(image)
    width = max(1, max(image.size) // 500)
    for number, line in enumerate(result.lines, start=1):
        corners = [(float(x), float(y)) for x, y in line.box]
        pen.line([*corners, corners[0]], fill=(220, 30, 30), width=width)
        pen.text(corners[0], str(number), fill=(20, 60, 220))
    try:
        image.save(target)
    except ValueError as error:
        raise ServeError(f"{target}: {error}", "end the name in .png or .jpg") from error
