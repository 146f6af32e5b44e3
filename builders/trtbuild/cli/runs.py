"""``trtbuild runs`` and ``compare``: what was measured, and whether two runs differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from trtbuild.cli.console import note, print_json, print_table
from trtbuild.cli.measured import bounded, milliseconds, open_store, runs_option, show_run
from trtbuild.errors import MeasureError


@click.command("runs")
@click.argument("run", required=False)
@click.option("-n", "--lines", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="As JSON; of one RUN: the whole record.")
@click.option("--csv", "as_csv", is_flag=True, help="As CSV; of one RUN: its requests.")
@click.option("--delete", is_flag=True, help="Remove RUN for good.")
@click.option(
    "--import",
    "imported",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Add a record that was exported as JSON.",
)
@runs_option
def runs_command(
    run: str | None,
    lines: int,
    as_json: bool,
    as_csv: bool,
    delete: bool,
    imported: Path | None,
    runs_file: Path | None,
) -> None:
    """List what was measured, or show one RUN: its id, its label, last, last~1."""
    if as_json and as_csv:
        raise click.UsageError("--json and --csv are two forms of the same: give one.")
    store = open_store(runs_file)
    if imported is not None:
        run = _import(store, imported)
    if run is None:
        if delete:
            raise click.UsageError("--delete needs a RUN.")
        _list(store, lines, as_json, as_csv)
        return
    if delete:
        click.echo(f"removed {store.delete(run).run_id}")
        return
    record = store.read(run)
    if as_json:
        print_json(record.as_json())
    elif as_csv:
        from trtbuild.measure.records.tables import requests_csv

        click.echo(requests_csv(record), nl=False)
    else:
        show_run(record)


def _import(store: Any, path: Path) -> str:
    import json

    from trtbuild.measure.load.lines import check_text, file_text
    from trtbuild.measure.records.record import Record

    try:
        data = json.loads(file_text(path))
    except (ValueError, RecursionError) as error:
        raise MeasureError(f"{path} is not JSON: {error}") from error
    check_text(data, str(path))
    record = Record.from_json(data)
    store.put(record)
    return record.run_id


def _list(store: Any, lines: int, as_json: bool, as_csv: bool) -> None:
    records = store.runs()[-lines:]
    if as_csv:
        from trtbuild.measure.records.tables import runs_csv

        click.echo(runs_csv(records), nl=False)
    elif as_json:
        print_json(
            [
                {key: value for key, value in one.as_json().items() if key not in ("requests", "timeline")}
                for one in records
            ]
        )
    elif records:
        print_table(
            (
                "run",
                "begun",
                "kind",
                "label",
                "state",
                "load",
                ">requests",
                ">TTFT P95, ms",
                ">tokens/s",
                ">goodput",
            ),
            [_row(one) for one in records],
        )
    else:
        note("no run was recorded yet; measure one: trtbuild bench")


def _row(record: Any) -> tuple[object, ...]:
    from trtbuild.measure.metrics import rate_value

    begun = record.begun[:16].replace("T", " ")
    if record.kind == "quality":
        from trtbuild.measure.quality.record import in_words

        asked = record.load["questions"]
        first = (record.run_id, begun, record.kind, record.label, record.state)
        return (*first, in_words(record), asked, "", "", "")
    group = record.metrics.get("all", {})
    rates = (rate_value(record, key) for key in ("tokens_out_per_s", "goodput_per_s"))
    tokens, goodput = ("" if rate is None else f"{rate:.1f}" for rate in rates)
    ttft = (group.get("ttft_s") or {}).get("p95") or {}
    return (
        record.run_id, begun, record.kind, record.label, record.state,
        " + ".join(describe_flow(flow) for flow in record.load.get("flows", ())), group.get("requests", ""),
        "" if ttft.get("value") is None else bounded(ttft), tokens, goodput,
    )  # fmt: skip


def describe_flow(flow: dict[str, Any]) -> str:
    """``closed 8, short/short``."""
    shape = flow["shape"]
    size = (
        shape.get("users") or shape.get("rate_per_s") or shape.get("to_per_s") or shape.get("requests") or ""
    )
    size = f"{size:g}" if isinstance(size, (int, float)) else size
    return f"{shape['kind']} {size}, {'+'.join(item['name'] for item in flow['traffic'])}".replace(" ,", ",")


@click.command("compare")
@click.argument("before")
@click.argument("after")
@click.option("--anyway", is_flag=True, help="Compare runs that are not comparable.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@runs_option
def compare_command(before: str, after: str, anyway: bool, as_json: bool, runs_file: Path | None) -> None:
    """Compare two runs, AFTER against BEFORE: side by side, and whether a difference is more than chance."""
    from dataclasses import asdict

    store = open_store(runs_file)
    from trtbuild.measure.records.compare import compare

    old, new = store.read(before), store.read(after)
    found = compare(old, new)
    if found.reasons and not anyway:
        raise MeasureError(
            f"{old.run_id} and {new.run_id} cannot be compared: {'; '.join(found.reasons)}",
            "measure both with the same load: trtbuild bench --load FILE",
            "--anyway to see them side by side all the same",
        )
    if as_json:
        print_json(asdict(found))
        return
    note("one run each: intervals hold what varies within a run, not between repeats of it")
    for reason in found.reasons:
        note(f"not comparable: {reason}")
    print_table(
        ("differs", "before", "after"),
        [
            (path, *("–" if value is None else value for value in values))
            for path, values in found.differs.items()
        ]
        or [("nothing", "", "")],
    )
    print_table(
        ("figure", ">before", ">after", ">change", ">95 % of it", "verdict"),
        [_compared(row) for row in found.rows],
    )


def _compared(row: Any) -> tuple[str, ...]:
    if row.before is None:
        return (row.metric, "–", "–", "–", "–", row.verdict)

    def shown(value: float, at_least: bool) -> str:
        return ("≥" if at_least else "") + (
            f"{milliseconds(value)} ms" if row.unit == "s" else f"{value:.3g}"
        )

    relative = "" if row.relative is None or any(row.at_least) else f"{row.relative:+.1%}"
    low, high = (
        "?" if end is None else f"{end / (row.before or 1.0):+.1%}"
        for end in (row.difference.low, row.difference.high)
    )
    interval = f"{low} to {high}" if row.before else ""
    values = (shown(value, bound) for value, bound in zip((row.before, row.after), row.at_least, strict=True))
    return (row.metric, *values, relative, interval, row.verdict)
