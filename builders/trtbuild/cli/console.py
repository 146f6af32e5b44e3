"""What commands print with: tables and JSON on stdout; notes and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 110  # columns of a table that no terminal limits
_GIB_BYTES = 1 << 30
_MIB_BYTES = 1 << 20


def note(text: str) -> None:
    """A remark beside the output proper."""
    click.echo(text, err=True)


def print_json(data: Any) -> None:
    """``data`` as JSON on stdout, whatever its text holds."""
    import json

    click.echo(json.dumps(data, indent=2, ensure_ascii=True))


def size(count_bytes: int) -> str:
    """Bytes in the unit that keeps three digits: ``5.32 GiB``, ``93.8 MiB``."""
    if abs(count_bytes) >= _GIB_BYTES:
        return f"{count_bytes / _GIB_BYTES:.2f} GiB"
    return f"{count_bytes / _MIB_BYTES:.1f} MiB"


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None
) -> None:
    """A table; columns whose name begins with ``>`` are aligned to the right, the last one wraps."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for index, column in enumerate(columns):
        last = index == len(columns) - 1
        table.add_column(
            Text(column.lstrip(">")),
            justify="right" if column.startswith(">") else "left",
            overflow="fold",
            no_wrap=not last,
        )
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console = _console()
    console.width = max(console.width, _least_width(columns, rows))
    with console.capture() as capture:
        console.print(table)
    lines = "\n".join(line.rstrip() for line in capture.get().splitlines())
    click.echo("\n" + lines.strip("\n"))


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Cells that a table needs so that no value is cut: in a narrower terminal its lines wrap instead."""
    from rich.cells import cell_len

    shown = [[column.lstrip(">") for column in columns]]
    shown += [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) + 3 for column in zip(*shown, strict=True)]  # padding and a divider
    last = max((cell_len(word) for row in shown for word in row[-1].split()), default=0)
    return sum(widths[:-1]) + last + 2  # the edges


@contextmanager
def step(text: str) -> Iterator[None]:
    """A long step: a spinner with the time for a person, one line for a log."""
    if not sys.stderr.isatty():
        note(f"· {text}")
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(text, total=1)
        yield
        progress.advance(task)


def _console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, soft_wrap=False)
