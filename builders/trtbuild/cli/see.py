"""``trtbuild see PICTURE…``: what a vision model of any task finds, as words, JSON, COCO, or drawn on the
picture."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtbuild.cli.connection import connect, server_options
from trtbuild.cli.console import note, print_json
from trtbuild.cli.pictures import picture_files, pictures_argument
from trtbuild.errors import ServeError

if TYPE_CHECKING:
    from tritonstream import Client

_FOUND_NOTHING = "nothing was found"
_EMBEDDING_SHOWN = 6
_AT_ONCE = 32


@click.command("see")
@pictures_argument
@server_options
@click.option("--json", "as_json", is_flag=True, help="Results as JSON, one a line.")
@click.option("--coco", is_flag=True, help="Boxes in COCO's results format; pictures are numbered from 0.")
@click.option(
    "--draw",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the (one) picture with what was found.",
)
def see_command(
    pictures: tuple[Path, ...],
    model: str | None,
    repo: Path | None,
    url: str | None,
    as_json: bool,
    coco: bool,
    draw: Path | None,
) -> None:
    """Classify, detect, segment, embed or read PICTURES (files or folders), by what the model can do.

    Taken are JPEG, PNG, WebP, BMP, TIFF and GIF, of several pictures in a file the first.
    """
    files = picture_files(pictures, draw)
    failed: list[tuple[Path, Exception]] = []
    rows: list[dict[str, Any]] = []
    with connect(repo, url) as server:
        look_at = partial(look, server.client, server.model(model, "vision"))
        for number, (picture, result) in enumerate(seen(look_at, files)):
            if coco:
                rows += _coco(result, number)
            else:
                _show(picture, result, as_json=as_json, several=len(files) > 1)
            if isinstance(result, Exception):
                failed.append((picture, result))
            elif draw is not None:
                save_drawing(result, draw)
    if coco:
        print_json(rows)
    refuse_failed(failed, len(files))


def seen(look_at: Callable[[list[Path]], list[Any]], files: list[Path]) -> Iterator[tuple[Path, Any]]:
    """Pictures and their results in order, a few at a time: a folder's need not fit into memory at once.

    Errors are without the numbers that the client gives pictures: here they have names. Where results go into
    a file, a terminal is told how far it is.
    """
    for first in range(0, len(files), _AT_ONCE):
        some = files[first : first + _AT_ONCE]
        for number, (file, result) in enumerate(zip(some, look_at(some), strict=True)):
            failed = isinstance(result, Exception)
            yield file, ServeError(str(result).replace(f"picture {number}: ", "", 1)) if failed else result
        if len(files) > _AT_ONCE and sys.stderr.isatty() and not sys.stdout.isatty():
            note(f"{first + len(some)} of {len(files)} pictures")


def look(client: Client, model: str, pictures: list[Path]) -> list[Any]:
    """Results of pictures in their order; of one that the model cannot take, the error.

    Raises:
        ServeError: the model takes no pictures.
    """
    from tritonstream import ModelKind

    kind = client.describe(model).kind
    methods: dict[Any, Any] = {
        ModelKind.OCR: client.ocr,
        ModelKind.CLASSIFIER: client.classify,
        ModelKind.DETECTOR: client.detect,
        ModelKind.SEGMENTER: client.segment,
        ModelKind.EMBEDDER: client.embed,
    }
    if kind not in methods:
        raise ServeError(
            f"{model} gives no answer that is known here (it is of the kind {kind.value})",
            "call it with tritonstream: client.infer(model, {'image': …})",
        )
    found: list[Any] = methods[kind](model, pictures, return_errors=True)
    return found


def save_drawing(result: Any, target: Path) -> None:
    """Writes what a result draws.

    Raises:
        ServeError: nothing can be drawn, or the file name's ending is of no picture format.
    """
    if not hasattr(result, "draw"):
        raise ServeError("a vector cannot be drawn", "leave out --draw")
    try:
        result.draw().save(target)
    except ValueError as error:
        raise ServeError(f"{target}: {error}", "end the name in .png or .jpg") from error


def refuse_failed(failed: list[tuple[Path, Exception]], count: int) -> None:
    """Raises:
    ServeError: where any of ``count`` pictures failed.
    """
    if failed:
        path, error = failed[0]
        where = "" if count == 1 else f"{len(failed)} of {count} pictures failed; {path}: "
        raise ServeError(f"{where}{error}")


def _show(picture: Path, result: Any, *, as_json: bool, several: bool) -> None:
    if as_json:
        data = {"error": str(result)} if isinstance(result, Exception) else json.loads(result.to_json())
        click.echo(json.dumps({"picture": str(picture), **data}, ensure_ascii=False))
        return
    lines = [f"error: {result}"] if isinstance(result, Exception) else _lines(result)
    if several:
        click.echo(f"{picture}:")
    for line in lines:
        click.echo(f"  {line}" if several else line)
    if not lines:
        note(_FOUND_NOTHING)


def _lines(result: Any) -> list[str]:
    from tritonstream import Classification, Detections, Embedding, OcrResult

    if isinstance(result, OcrResult):
        return [line.text for line in result.lines]
    if isinstance(result, Classification):
        return [f"{found.score:.3f}  {found.label}" for found in result.classes]
    if isinstance(result, Detections):
        return [
            f"{thing.score:.3f}  {thing.label}  ({', '.join(f'{side:.0f}' for side in thing.box)})"
            for thing in result.things
        ]
    if isinstance(result, Embedding):
        shown = ", ".join(f"{value:.4f}" for value in result.values[:_EMBEDDING_SHOWN])
        return [f"{len(result.values)} numbers: {shown}, …"]
    counts = json.loads(result.to_json())["pixels"]
    total = sum(counts.values())
    ranked = sorted(counts.items(), key=lambda pair: -pair[1])
    return [f"{count / total:.1%} of the pixels: class {number}" for number, count in ranked]


def _coco(result: Any, number: int) -> list[dict[str, Any]]:
    if isinstance(result, Exception):
        return []
    if not hasattr(result, "to_coco"):
        raise ServeError("COCO's format is for boxes, and the model gives none", "use --json")
    rows: list[dict[str, Any]] = result.to_coco(number)
    return rows
