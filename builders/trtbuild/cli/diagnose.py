"""``trtbuild diagnose``: what limits a server, from a recorded run or from a short one made now."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtbuild.cli.console import note, print_json
from trtbuild.cli.measured import live, make_flow, open_store, runs_option, the_model
from trtbuild.cli.options import ABOVE_ZERO
from trtbuild.errors import MeasureError

if TYPE_CHECKING:
    from trtbuild.measure.records.record import Record
    from trtbuild.measure.records.store import Store

_LIVE = {"slo_ttft": None, "slo_tpot": None, "slo_latency": None, "seed": 1, "timeout_s": 120.0}


@click.command("diagnose")
@click.argument("what", metavar="RUN|SERVER")
@click.option("--model", metavar="NAME", help="Of a SERVER; default: the only one there is.")
@click.option("--users", type=click.IntRange(min=1), default=4, show_default=True, help="Load on a SERVER.")
@click.option("--duration", "duration_s", type=ABOVE_ZERO, default=20.0, show_default=True, metavar="SECONDS")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def diagnose_command(
    what: str, model: str | None, users: int, duration_s: float, runs_file: Path | None, as_json: bool
) -> None:
    """Say what limits: of a recorded RUN, or of a SERVER (HOST:PORT or its repository) under a short load."""
    store = open_store(runs_file)
    from trtbuild.measure.diagnose import diagnose
    from trtbuild.measure.stats import least_count

    is_server = Path(what).is_dir() or ":" in what
    record = _measured(what, model, users, duration_s, store) if is_server else store.read(what)
    if record.kind == "quality":
        raise MeasureError(
            f"run {record.run_id} compared answers: nothing in it was timed", "a timed run: trtbuild bench"
        )
    found = diagnose(record)
    well = sum(one.outcome == "ok" for one in record.measured())
    if not found and not well:
        longest_s = max((one.latency_s or 0.0 for one in record.requests), default=duration_s)
        raise MeasureError(
            f"run {record.run_id} has no measured request that was answered: what limits cannot be told",
            f"--duration {math.ceil(4 * longest_s)}" if is_server else "a longer run: trtbuild bench",
        )
    if as_json:
        print_json({"run": record.run_id, "limits": [limit.as_json() for limit in found]})
        return
    for number, limit in enumerate(found, 1):
        click.echo(f"{number}. {limit.name}: {limit.evidence}")
        click.echo(f"   → {limit.change}")
    if well < least_count(0.5):
        note(f"only {well} measured requests were answered, and a median needs {least_count(0.5)}")
    if not found:
        click.echo("nothing stands out: the figures are what this model does on this machine")
    if not record.timeline:
        note("the server's metrics were not read, so that its queues and KV cache are not judged")
    for text in record.notes:
        note(f"note: {text}")


def _measured(what: str, model: str | None, users: int, duration_s: float, store: Store) -> Record:
    from trtbuild.cli.measured import make_load
    from trtbuild.measure.bench import bench
    from trtbuild.measure.server import find_server

    folder = Path(what) if Path(what).is_dir() else None
    server = find_server(folder, None if folder else what)
    flow = make_flow(the_model(server, model), f"closed:{users}", (), 0.0)
    load = make_load([flow], {**_LIVE, "duration_s": duration_s, "warmup_s": duration_s / 5})
    with live("diagnose", duration_s) as display:
        return bench(server, load, store, label="diagnose", on_progress=display)
