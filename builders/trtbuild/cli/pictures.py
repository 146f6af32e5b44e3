"""Pictures on the command line: files and folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])
# In a folder; a file that is named is sent whatever its ending. Those of what the fronts read.
_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def pictures_argument(command: _Command) -> _Command:
    """Adds PICTURES…, which `picture_files` reads."""
    kind = click.Path(path_type=Path)
    return click.argument("pictures", nargs=-1, required=True, type=kind)(command)


def picture_files(given: Sequence[Path], draw: Path | None = None) -> list[Path]:
    """Files in the order given, and those of a folder by name.

    One that is not there is kept, so that it fails alone, as one that is no picture does.

    Args:
        draw: a file that the one picture is to be drawn into.

    Raises:
        click.UsageError: nothing is there, a folder has no pictures, or several shall be drawn into one file.
    """
    if not any(path.exists() for path in given):
        raise click.UsageError(f"no such file or folder: {', '.join(map(str, given))}.")
    files: list[Path] = []
    for path in given:
        found = [path]
        if path.is_dir():
            found = sorted(
                file for file in path.iterdir() if file.suffix.lower() in _ENDINGS and file.is_file()
            )
            if not found:
                raise click.UsageError(f"no picture lies in {path} ({', '.join(_ENDINGS)}).")
        files += found
    if draw is not None and len(files) > 1:
        raise click.UsageError(f"--draw writes one picture, and {len(files)} were given.")
    return files
