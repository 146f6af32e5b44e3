"""Makes a configuration's repository, serves it, measures it, ends it."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtbuild.errors import MeasureError, TrtbuildError
from trtbuild.measure.bench import bench, check_load
from trtbuild.measure.load.generator import Progress
from trtbuild.measure.load.spec import LoadSpec, Slo
from trtbuild.measure.records.store import Store
from trtbuild.measure.server import MeasuredServer
from trtbuild.measure.sweep import Budget, Level
from trtbuild.measure.tune.knobs import Knob, Settings, apply, knobs_of
from trtbuild.measure.tune.search import Trial, Tuning, search
from trtbuild.spec import DeploymentSpec, Target
from trtbuild.tenants import Repository


@dataclass(frozen=True)
class Tuned:
    """The search's result with the spec that it found."""

    tuning: Tuning
    spec: DeploymentSpec
    series: str
    knobs: tuple[Knob, ...]


def tune(
    repository: Repository,
    model: str,
    load: LoadSpec,
    budget: Budget,
    store: Store,
    *,
    only: Sequence[str] = (),
    most_trials: int = 12,
    repeats: int = 2,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Tuned:
    """Searches from a repository's own spec; the repository itself stays as it is.

    Args:
        only: names of knobs, or the ends of them; empty: all.

    Raises:
        MeasureError: a target that cannot be served here, or a knob that is none.
    """
    if repository.plan.target is not Target.LOCAL:
        target = repository.plan.target.value
        raise MeasureError(
            f"{repository.path} is for the target {target}: each trial would compile an "
            "engine and serve it on the GPU, which tune does not do",
            "plan the limits from a budget instead: trtbuild simulate",
            "or measure by hand: trtbuild build, launch.sh, trtbuild sweep",
        )
    knobs = _chosen(knobs_of(repository.plan, model), only)
    load = load.model_copy(update={"slo": _slo(load.slo, budget)})
    check_load(load)
    series = secrets.token_hex(4)
    with tempfile.TemporaryDirectory(prefix="trtbuild-tune-") as scratch:

        def measure(settings: Settings) -> Trial:
            spec = apply(repository.spec, knobs, settings)
            trial = _trial(spec, settings, Path(scratch), load, budget, store, series, on_progress)
            on_trial(trial)
            return trial

        tuning = search(measure, knobs, most_trials=most_trials, repeats=repeats)
    return Tuned(tuning, apply(repository.spec, knobs, tuning.best.settings), series, tuple(knobs))


def _slo(slo: Slo, budget: Budget) -> Slo:
    return slo if slo != Slo() else Slo.model_validate({budget.metric: budget.limit_s})


def _chosen(knobs: list[Knob], only: Sequence[str]) -> list[Knob]:
    for name in only:
        if not any(knob.name.endswith(name) for knob in knobs):
            raise MeasureError(
                f"there is no parameter {name!r} to tune", ", ".join(knob.name for knob in knobs)
            )
    return [knob for knob in knobs if not only or any(knob.name.endswith(name) for name in only)]


def _trial(
    spec: DeploymentSpec,
    settings: Settings,
    scratch: Path,
    load: LoadSpec,
    budget: Budget,
    store: Store,
    series: str,
    on_progress: Callable[[Progress], None],
) -> Trial:
    from trtbuild.generate import generate
    from trtbuild.prepare import prepare
    from trtbuild.serve.server import start

    label = ", ".join(f"{name}={value}" for name, value in settings.items()) or "as planned"
    folder = scratch / secrets.token_hex(4)
    try:
        prepared = prepare(spec)
        if not prepared.plan.fits or prepared.plan.errors:
            why = "; ".join(finding.message for finding in prepared.plan.errors)
            return Trial(settings, None, error=why or "it does not fit")
        generate(prepared, folder)
        with start(folder) as server:
            measured = MeasuredServer(
                server.grpc_address, server.metrics_address, server.http_address, server.pid, folder
            )
            record = bench(
                measured, load, store, label=label, kind="tune", series=series, on_progress=on_progress
            )
    except TrtbuildError as error:
        return Trial(settings, None, error=error.message)
    if not record.complete:
        return Trial(settings, None, run_id=record.run_id, error=f"{record.state}: {record.why}")
    goodput = record.metrics["all"]["goodput_per_s"]["value"]
    return Trial(settings, goodput, Level(0.0, budget, [record]).figure.value, record.run_id)
