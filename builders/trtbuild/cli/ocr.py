"""``trtbuild ocr PICTURE…``: the lines of text in pictures, as words, JSON, or boxes drawn on one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from trtbuild.cli.connection import connect, server_options
from trtbuild.cli.console import note, print_json
from trtbuild.cli.pictures import picture_files, pictures_argument
from trtbuild.cli.see import refuse_failed, save_drawing, seen


@click.command("ocr")
@pictures_argument
@server_options
@click.option("--json", "as_json", is_flag=True, help="Lines with boxes and scores; of several, one a line.")
@click.option(
    "--draw", type=click.Path(path_type=Path), metavar="FILE", help="Write the (one) picture with its boxes."
)
def ocr_command(
    pictures: tuple[Path, ...],
    model: str | None,
    repo: Path | None,
    url: str | None,
    as_json: bool,
    draw: Path | None,
) -> None:
    """Read the text of PICTURES (files or folders), line by line in reading order.

    Read are JPEG, PNG, WebP, BMP, TIFF and GIF, of several pictures in a file the first; and Latin letters
    with accents, Greek, Chinese (simplified and traditional), Japanese, digits and signs. Other scripts, such
    as Cyrillic, Korean or Arabic, come out as wrong letters or not at all.
    """
    files = picture_files(pictures, draw)
    failed: list[tuple[Path, Exception]] = []
    with connect(repo, url) as server:
        read = partial(server.client.ocr, server.model(model, "vision", task="ocr"), return_errors=True)
        for picture, result in seen(read, files):
            if isinstance(result, Exception):
                failed.append((picture, result))
            elif draw is not None:
                save_drawing(result, draw)
            _show(picture, result, as_json=as_json, several=len(files) > 1)
    refuse_failed(failed, len(files))


def _show(picture: Path, result: Any, *, as_json: bool, several: bool) -> None:
    failed = isinstance(result, Exception)
    if failed and not several:
        return  # said as the command's error
    if as_json:
        data: dict[str, Any] = {"picture": str(picture)}
        if failed:
            data["error"] = str(result)
        else:
            data["lines"] = [
                {"text": line.text, "score": line.score, "box": line.box} for line in result.lines
            ]
        if several:
            click.echo(json.dumps(data))
        else:
            print_json(data)
        return
    if several:
        click.echo(f"{picture}:")
    for text in [f"error: {result}"] if failed else [line.text for line in result.lines]:
        click.echo(f"  {text}" if several else text)
    if not failed and not result.lines:
        note("no text was found")
