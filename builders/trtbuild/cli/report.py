"""``trtbuild report``: runs as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtbuild.cli.measured import open_store, runs_option
from trtbuild.cli.options import ABOVE_ZERO
from trtbuild.errors import MeasureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtbuild.measure.records.record import Record


def _page(records: list[Record], title: str | None, budget_s: float | None) -> str:
    from trtbuild.measure.quality.page import quality_page
    from trtbuild.measure.report.page import report_page

    last = records[-1]
    compared = [one.run_id for one in records if one.kind == "quality"]
    if compared and len(records) > 1:
        raise MeasureError(
            f"{', '.join(compared)} compared answers, and a report is of timed runs or of one comparison",
            *(f"trtbuild report {run_id}" for run_id in compared),
        )
    if compared:
        return quality_page(last.metrics["page"], title=title or f"Quality {last.label or last.run_id}")
    return report_page(records, title=title or _title(records), budget_s=budget_s)


def _title(records: Sequence[Record]) -> str:
    """What it is about: a run by its label or id, several by what they have in common."""
    last = records[-1]
    if len(records) == 1:
        return f"Measurement {last.label or last.run_id}"
    kinds = {one.kind for one in records}
    models = dict.fromkeys(name for one in records for name in one.deployment.get("models", ()))
    what = last.kind.capitalize() if len(kinds) == 1 else "Measurements"
    return f"{what} of {', '.join(models) or 'a server'}: {len(records)} runs, the last {last.run_id}"


@click.command("report")
@click.argument("runs", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="report.html",
    show_default=True,
)
@click.option(
    "--budget",
    "budget_s",
    type=ABOVE_ZERO,
    metavar="SECONDS",
    help="TTFT budget line; default: the run's SLO.",
)
@click.option("--title", help="Default: by what was measured.")
@runs_option
def report_command(
    runs: tuple[str, ...], output: Path, budget_s: float | None, title: str | None, runs_file: Path | None
) -> None:
    """Write one HTML page about RUNS (default: the last one, with all runs of its series)."""
    from importlib.util import find_spec

    store = open_store(runs_file)
    if find_spec("matplotlib") is None:
        raise MeasureError("a report needs matplotlib", "pip install 'trtbuild[measure]'")
    records = [store.read(name) for name in runs or ("last",)]
    if len(records) == 1 and records[0].series is not None:
        series = records[0].series
        records = [store.read(one.run_id) for one in store.runs() if one.series == series]
    page = _page(records, title, budget_s)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page, encoding="utf-8")
    click.echo(
        f"{output}: {len(records)} run{'s' if len(records) > 1 else ''}, {len(page.encode()) / 1024:.0f} KiB"
    )
