"""``trtbuild sweep``: the most load that a server carries within a latency budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trtbuild.cli.console import note, print_json, print_table
from trtbuild.cli.measured import (
    bounded,
    chosen_server,
    interval,
    live,
    load_options,
    make_flow,
    make_load,
    open_store,
    runs_option,
    server_choice,
    text_or_vision,
    the_model,
)
from trtbuild.cli.options import ABOVE_ZERO, Number
from trtbuild.errors import MeasureError

if TYPE_CHECKING:
    from trtbuild.measure.sweep import Budget, By, Level, SweepResult

METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "latency": "latency_s"}


_Command = TypeVar("_Command", bound=Callable[..., Any])


def budget_options(command: _Command) -> _Command:
    """Adds what describes a latency budget, which `make_budget` reads."""
    for option in (
        click.option("--percentile", type=Number(50, 99.9), default=95.0, show_default=True),
        click.option(
            "--metric",
            type=click.Choice(list(METRICS)),
            default="ttft",
            show_default=True,
            help="What the budget is for.",
        ),
        click.option(
            "--budget",
            "budget_s",
            type=ABOVE_ZERO,
            required=True,
            metavar="SECONDS",
        ),
    ):
        command = option(command)
    return command


def make_budget(budget_s: float, metric: str, percentile: float) -> Budget:
    """The budget that the options say."""
    from trtbuild.measure.sweep import Budget

    return Budget(budget_s, METRICS[metric], percentile / 100)


@click.command("sweep")
@budget_options
@click.option(
    "--by", type=click.Choice(["users", "rate"]), default="users", show_default=True, help="What is raised."
)
@click.option("--from", "start", type=ABOVE_ZERO, default=1.0, show_default=True, help="First level.")
@click.option("--to", "most", type=ABOVE_ZERO, default=256.0, show_default=True, help="Highest level.")
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Runs that confirm the level found.",
)
@click.option("--model", metavar="NAME", help="Default: the only one there is.")
@server_choice
@load_options
@click.option("--label", default="", help="A name to find the runs by.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def sweep_command(
    budget_s: float, metric: str, percentile: float, by: Any, start: float, most: float, repeats: int,
    model: str | None, repo: Path | None, url: str | None, metrics: str | None, traffic: tuple[str, ...],
    prefix_share: float, label: str, runs_file: Path | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Raise the load until the budget breaks, step back and confirm. Exit code 1 when no level meets it."""
    if not start <= most:
        raise click.UsageError("--from is above --to.")
    if by == "users" and not (start.is_integer() and most.is_integer()):
        raise click.UsageError(
            "users are whole: --from 1 --to 64; parts of a request a second are --by rate."
        )
    server, store = chosen_server(repo, url, metrics), open_store(runs_file)
    from trtbuild.measure.sweep import in_words, sweep

    budget = make_budget(budget_s, metric, percentile)
    chosen = the_model(server, model, text_or_vision(traffic))
    load = make_load([make_flow(chosen, "closed:1", traffic, prefix_share)], options)
    least = 1.0 if by == "users" else start / 64

    def on_level(level: Level) -> None:
        note(f"· {_sentence(level, by)}")

    with live("sweep", load.duration_s) as display:
        found = sweep(
            server, load, budget, store, by=by, start=start, most=most, least=least, repeats=repeats,
            label=label, on_level=on_level, on_progress=display,
        )  # fmt: skip
    if as_json:
        print_json(found.as_json())
    else:
        _show(found)
    if found.safe is None:
        raise MeasureError(
            f"no level meets {found.budget}: {in_words(found.nearest, found.by)} comes nearest with "
            f"{_figure(found.nearest)}",
            "a larger budget, shorter prompts or answers, or `trtbuild tune` for another configuration",
        )


def _figure(level: Level) -> str:
    figure = level.figure
    if figure.value is None:
        over, count = level.over
        return f"{over} of {count} requests above it"
    return f"{bounded(figure.as_json())} ms ({interval(figure.low, figure.high)})"


def _sentence(level: Level, by: By) -> str:
    from trtbuild.measure.sweep import in_words

    verdict = "meets it" if level.meets else "breaks it"
    sure = "" if level.sure else ", not surely"
    return f"{in_words(level, by)}: {_figure(level)}, {verdict}{sure}"


def _show(found: SweepResult) -> None:
    from trtbuild.measure.sweep import in_words

    rows = [
        (
            f"{level.load:g}", len(level.records), bounded(level.figure.as_json()),
            interval(level.figure.low, level.figure.high),
            ("meets" if level.meets else "breaks") + ("" if level.sure else ", unsure"),
            f"{level.rate('tokens_out_per_s'):.1f}", f"{level.rate('requests_per_s'):.2f}",
            " ".join(
                name
                for name, one in (("safe", found.safe), ("knee", found.knee))
                if one is not None and one.load == level.load
                and (name == "safe" or level is not found.levels[-1])
            ),
        )
        for level in found.levels
    ]  # fmt: skip
    columns = (f">{found.by}", ">runs", ">ms", ">95 %", "budget", ">tokens/s", ">requests/s", "")
    print_table(columns, rows, title=str(found.budget))
    if found.safe is not None:
        how = "surely" if found.safe.sure else "probably: the interval reaches over the limit"
        top = " (the highest that was tried)" if found.safe.load == found.levels[-1].load else ""
        knee = in_words(found.knee, found.by)
        if found.knee.load == found.levels[-1].load:
            knee = f"not reached by {knee}"
        click.echo(f"safe: {in_words(found.safe, found.by)}{top}, {how}; knee: {knee}")
    click.echo(
        f"page: trtbuild report {found.levels[-1].records[-1].run_id} --budget {found.budget.limit_s:g}"
    )
