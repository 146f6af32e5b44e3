"""``trtbuild ocr PICTURE``: the lines of text in a picture, as words, JSON, or boxes drawn on it."""

from __future__ import annotations

from pathlib import Path

import click

from trtbuild.cli.connection import connect, server_options
from trtbuild.cli.console import note, print_json
from trtbuild.cli.see import save_drawing


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
        result = server.client.ocr(server.model(model, "vision", task="ocr"), picture)
        if draw is not None:
            save_drawing(result, draw)
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
