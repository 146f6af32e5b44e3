"""``trtbuild bench``: load on a running server, measured from outside and from inside, and kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from trtbuild.cli.console import print_json
from trtbuild.cli.measured import (
    chosen_server,
    live,
    load_from_file,
    load_options,
    make_flow,
    make_load,
    open_store,
    runs_option,
    server_choice,
    show_run,
    text_or_vision,
    the_model,
)
from trtbuild.cli.options import ABOVE_ZERO
from trtbuild.errors import MeasureError

_LOAD_SAYS = (
    "model", "users", "rate", "shape", "traffic", "prefix_share", "duration_s", "warmup_s", "seed",
    "timeout_s", "slo_ttft", "slo_tpot", "slo_latency", "requests", "mix",
)  # fmt: skip


@click.command("bench")
@click.option("--model", metavar="NAME", help="Default: the only one there is.")
@server_choice
@click.option("--users", type=click.IntRange(min=1), help="Closed loop: how many users (default 1).")
@click.option("--rate", type=ABOVE_ZERO, metavar="PER_SECOND", help="Open loop: Poisson arrivals.")
@click.option(
    "--shape", help="closed:N, poisson:R, constant:R, bursts:N@SECONDS, ramp:A-B, trace:FILE[@SPEED]."
)
@load_options
@click.option("--requests", type=click.IntRange(min=1), help="Stop after this many.")
@click.option(
    "--load",
    "load_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="All of this from a YAML file.",
)
@click.option(
    "--mix", is_flag=True, help="LLM and vision: each alone, then together; shows what each costs the other."
)
@click.option(
    "--vision-shape", default="closed:2", show_default=True, help="Of --mix: load of the vision model."
)
@click.option("--vision-model", metavar="NAME", help="Of --mix; default: the only one there is.")
@click.option("--label", default="", help="A name to find the run by.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="The record as JSON, raw latencies included.")
def bench_command(
    model: str | None,
    repo: Path | None,
    url: str | None,
    metrics: str | None,
    users: int | None,
    rate: float | None,
    shape: str | None,
    traffic: tuple[str, ...],
    prefix_share: float,
    load_file: Path | None,
    mix: bool,
    vision_shape: str,
    vision_model: str | None,
    label: str,
    runs_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Put load on a server and record what it does. Latencies count from the intended send time."""
    chosen = [name for name, value in (("--users", users), ("--rate", rate), ("--shape", shape)) if value]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} each say when requests come: give one.")
    if load_file is not None:
        _refuse("--load FILE describes the whole load, and would not heed", _LOAD_SAYS)
    if not mix:
        _refuse("only --mix heeds", ("vision_shape", "vision_model"))
    server, store = chosen_server(repo, url, metrics), open_store(runs_file)
    from trtbuild.measure.bench import bench

    words = shape or (f"poisson:{rate}" if rate else f"closed:{users or 1}")
    if mix:
        vision = (vision_shape, vision_model)
        _mix(server, store, model, words, traffic, prefix_share, vision, label, as_json, options)
        return
    if load_file is not None:
        load = load_from_file(load_file)
    else:
        flow = make_flow(the_model(server, model, text_or_vision(traffic)), words, traffic, prefix_share)
        load = make_load([flow], options)
    with live(label or "bench", load.duration_s) as display:
        record = bench(server, load, store, label=label, on_progress=display)
    if as_json:
        print_json(record.as_json())
    else:
        show_run(record)
    if not record.complete:
        if record.state == "not kept":
            raise MeasureError(
                f"the run could not be kept: {record.why}", "room there, or --runs FILE elsewhere"
            )
        raise MeasureError(
            f"the run is not complete: {record.state} ({record.why})",
            f"what was measured is kept: trtbuild runs {record.run_id}",
        )
    measured = record.measured()
    if not any(one.outcome == "ok" for one in measured):
        raise MeasureError(
            f"none of {len(measured)} requests was answered in full" if measured else "nothing was measured",
            f"what came is kept: trtbuild runs {record.run_id}",
        )


def _refuse(why: str, names: Sequence[str]) -> None:
    """Raises if one of these was given on the command line, where it would do nothing."""
    context = click.get_current_context()
    options = {option.name: option.opts[0] for option in context.command.params}
    given = [
        options[name] for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{why} {', '.join(given)}.")


def _mix(
    server: Any, store: Any, model: str | None, shape: str, traffic: tuple[str, ...], prefix_share: float,
    vision: tuple[str, str | None], label: str, as_json: bool, options: dict[str, Any],
) -> None:  # fmt: skip
    from trtbuild.cli.console import print_table
    from trtbuild.cli.measured import bounded
    from trtbuild.measure.mix import run_mix

    vision_shape, vision_model = vision
    words = [item for item in traffic if not item.startswith("vision")]
    pictures = [item for item in traffic if item.startswith("vision")] or ["vision"]
    flows = [
        make_flow(the_model(server, model), shape, words, prefix_share),
        make_flow(the_model(server, vision_model, "vision", "--vision-model"), vision_shape, pictures, 0.0),
    ]
    load = make_load(flows, options)
    with live("mix", 3 * load.duration_s) as display:
        mixed = run_mix(server, load, store, label=label, on_progress=display)
    if as_json:
        print_json(mixed.as_json())
        return
    rows = [
        (tenant.model, tenant.metric, bounded(tenant.alone.as_json()), bounded(tenant.together.as_json()),
         f"{tenant.ratio:.2f}" if tenant.ratio else tenant.why)
        for tenant in mixed.tenants
    ]  # fmt: skip
    print_table(("tenant", "figure", ">alone, ms", ">under the other's load, ms", ">times"), rows)
    for one in mixed.tokens:
        click.echo(_tokens(one))
    click.echo(f"runs {', '.join(mixed.run_ids)}")


def _tokens(one: Any) -> str:
    text = f"{one.model}: {one.alone_per_s:.0f} tokens/s alone, {one.together_per_s:.0f} beside "
    text += f"{one.pictures_per_s:.1f} pictures/s"
    if one.ratio is not None:
        text += f": {one.ratio:.2f} of it"
    if one.share is None:
        return text
    return (
        f"{text}\n  the pictures' own work, {1000 * one.cpu_s_per_picture:.0f} ms of CPU each on {one.cores} "
        f"cores, leaves {one.left:.2f} of the machine; of that it has {one.share:.2f}"
    )
