"""``trtbuild tune``: a better configuration of a repository for a load and a budget, by trial."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtbuild.cli.console import note, print_json, print_table
from trtbuild.cli.measured import (
    bounded,
    live,
    load_options,
    make_flow,
    make_load,
    open_store,
    runs_option,
)
from trtbuild.cli.options import DEFAULT_OUTPUT, FOLDER
from trtbuild.cli.sweep import budget_options, make_budget
from trtbuild.errors import MeasureError

if TYPE_CHECKING:
    from trtbuild.measure.tune.run import Tuned
    from trtbuild.measure.tune.search import Trial


@click.command("tune")
@click.argument("repo", type=FOLDER, default=DEFAULT_OUTPUT)
@budget_options
@click.option("--shape", default="closed:8", show_default=True, help="The load: closed:N, poisson:R, …")
@click.option("--only", multiple=True, metavar="PARAMETER", help="Tune these alone, such as max_batch_size.")
@click.option("--trials", type=click.IntRange(min=2), default=12, show_default=True, help="At most.")
@click.option("--model", metavar="NAME", help="Default: the only language model.")
@load_options
@click.option(
    "-o", "--output", type=FOLDER, default="tuned.yaml", show_default=True, help="The spec that was found."
)
@runs_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def tune_command(
    repo: Path, budget_s: float, metric: str, percentile: float, shape: str, only: tuple[str, ...],
    trials: int, model: str | None, traffic: tuple[str, ...], prefix_share: float, output: Path,
    runs_file: Path | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Vary one parameter of REPO's plan at a time; keep what raises the goodput within the budget."""
    from trtbuild.tenants import Repository

    store, repository = open_store(runs_file), Repository.open(repo)
    from trtbuild.measure.tune.run import tune

    llms = [llm.name for llm in repository.plan.llms]
    if model is None and len(llms) != 1:
        named = (f"--model {name}" for name in llms)
        raise MeasureError(f"{repo} holds {len(llms)} language models", *named)
    name = model or llms[0]
    budget = make_budget(budget_s, metric, percentile)
    load = make_load([make_flow(name, shape, traffic, prefix_share)], options)
    with live("tune", load.duration_s) as display:
        tuned = tune(
            repository, name, load, budget, store, only=only, most_trials=trials,
            on_trial=lambda trial: note(f"· {_sentence(trial)}"), on_progress=display,
        )  # fmt: skip
    best = tuned.tuning.best
    if best.score is None:
        raise MeasureError(f"no configuration could be served: {best.error}")
    from trtbuild.repository.compose import spec_text

    output.write_text(spec_text(tuned.spec), encoding="utf-8")
    if as_json:
        print_json({**tuned.tuning.as_json(), "series": tuned.series, "spec": str(output)})
    else:
        _show(tuned, output)
    if best.score == 0:
        raise MeasureError(
            f"no configuration meets {budget}: the nearest has {_figure(best)} ms",
            "a larger budget, less load (--shape), or a smaller model",
        )


def _sentence(trial: Trial) -> str:
    what = ", ".join(f"{name} {value}" for name, value in trial.settings.items()) or "as planned"
    if trial.score is None:
        return f"{what}: not possible ({trial.error})"
    return f"{what}: goodput {trial.score:.2f}/s, {_figure(trial)} ms"


def _figure(trial: Trial) -> str:
    return bounded({"value": trial.figure_s, "at_least": trial.at_least})


def _show(tuned: Tuned, output: Path) -> None:
    tuning = tuned.tuning
    rows = [
        (
            ", ".join(f"{name} {value}" for name, value in trial.settings.items()) or "as planned",
            "–" if trial.score is None else f"{trial.score:.2f}", _figure(trial),
            "best" if trial is tuning.best else trial.error,
        )
        for trial in tuning.trials
    ]  # fmt: skip
    print_table(("settings", ">goodput/s", ">ms", ""), rows)
    before, after = tuning.begin.score or 0.0, tuning.best.score or 0.0
    gain = f", {after / before - 1:+.0%} over the plan" if before else ""
    click.echo(
        f"best: goodput {after:.2f}/s{gain} (what counts as noise: {tuning.noise:.0%}), {len(rows)} runs"
    )
    click.echo(f"{output}: write its repository with `trtbuild --spec {output} --output FOLDER`")
