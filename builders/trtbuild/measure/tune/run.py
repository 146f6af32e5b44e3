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
from trtbuild.measure.records.record import Record
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
    trials = Trials(repository, model, load, budget, store, only=only, on_progress=on_progress)
    with trials:

        def measure(settings: Settings) -> Trial:
            trial = trials.measure(settings)
            on_trial(trial)
            return trial

        tuning = search(measure, trials.knobs, most_trials=most_trials, repeats=repeats)
    return Tuned(tuning, trials.spec(tuning.best.settings), trials.series, trials.knobs)


class Trials:
    """Makes configurations of a repository, serves and measures each; a context manager, for its scratch.

    Raises:
        MeasureError: a target that cannot be served here, or a knob that is none.
    """

    def __init__(
        self,
        repository: Repository,
        model: str,
        load: LoadSpec,
        budget: Budget,
        store: Store,
        *,
        only: Sequence[str] = (),
        series: str | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        if repository.plan.target is not Target.LOCAL:
            target = repository.plan.target.value
            raise MeasureError(
                f"{repository.path} is for the target {target}: each trial would compile an "
                "engine and serve it on the GPU, which tune does not do",
                "plan the limits from a budget instead: trtbuild simulate",
                "or measure by hand: trtbuild build, launch.sh, trtbuild sweep",
            )
        self.knobs = tuple(_chosen(knobs_of(repository.plan, model), only))
        self.series = series or secrets.token_hex(4)
        self._begin, self._budget, self._store = repository.spec, budget, store
        self._load = load.model_copy(update={"slo": _slo(load.slo, budget)})
        self._on_progress = on_progress
        self._scratch = tempfile.TemporaryDirectory(prefix="trtbuild-tune-")
        check_load(self._load)

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *error: object) -> None:
        self._scratch.cleanup()

    def spec(self, settings: Settings) -> DeploymentSpec:
        """The repository's spec with these settings."""
        return apply(self._begin, self.knobs, settings)

    def measure(self, settings: Settings) -> Trial:
        """Makes a configuration and measures it; whatever keeps it from being served is the trial's error."""
        try:
            record = self._measured(self.spec(settings), label_of(settings))
        except TrtbuildError as error:
            return Trial(settings, None, error=error.message)
        return trial_of(record, settings, self._budget)

    def _measured(self, spec: DeploymentSpec, label: str) -> Record:
        from trtbuild.generate import generate
        from trtbuild.prepare import prepare
        from trtbuild.serve.server import start

        folder = Path(self._scratch.name) / secrets.token_hex(4)
        prepared = prepare(spec)
        if not prepared.plan.fits or prepared.plan.errors:
            why = "; ".join(finding.message for finding in prepared.plan.errors)
            raise MeasureError(why or "it does not fit")
        generate(prepared, folder)
        with start(folder) as server:
            measured = MeasuredServer(
                server.grpc_address, server.metrics_address, server.http_address, server.pid, folder
            )
            return bench(
                measured, self._load, self._store, label=label, kind="tune", series=self.series,
                on_progress=self._on_progress,
            )  # fmt: skip


def label_of(settings: Settings) -> str:
    """What a trial's record is called."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "as planned"


def trial_of(record: Record, settings: Settings, budget: Budget) -> Trial:
    """What a record says of a configuration."""
    if not record.complete:
        return Trial(settings, None, run_id=record.run_id, error=f"{record.state}: {record.why}")
    goodput = record.metrics["all"]["goodput_per_s"]["value"]
    figure = Level(0.0, budget, [record]).figure
    return Trial(settings, goodput, figure.value, record.run_id, at_least=figure.at_least)


def _slo(slo: Slo, budget: Budget) -> Slo:
    return slo if slo != Slo() else Slo.model_validate({budget.metric: budget.limit_s})


def _chosen(knobs: list[Knob], only: Sequence[str]) -> list[Knob]:
    for name in only:
        if not any(knob.name.endswith(name) for knob in knobs):
            raise MeasureError(
                f"there is no parameter {name!r} to tune", ", ".join(knob.name for knob in knobs)
            )
    return [knob for knob in knobs if not only or any(knob.name.endswith(name) for name in only)]
