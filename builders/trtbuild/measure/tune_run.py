"""``scripts/prove-tune``: what ``tune`` finds, against every cell of a grid that it may choose from.

A first run, of the plan as it is, sets what the machine's speed decides: the budget is the TTFT that half
of its requests keep, and a run is as long as a goodput needs requests. All runs are kept in the folder. A
call does what is not there yet, as long as ``--minutes`` last; the last call prints the tables.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trtbuild.errors import MeasureError, TrtbuildError
from trtbuild.measure.load.flags import parse_shape, parse_traffic
from trtbuild.measure.load.spec import Flow, LoadSpec
from trtbuild.measure.records.record import Record
from trtbuild.measure.records.store import Store
from trtbuild.measure.sweep import Budget
from trtbuild.measure.tune.knobs import Knob, Settings
from trtbuild.measure.tune.run import Trials, label_of, trial_of
from trtbuild.measure.tune.search import Trial, search
from trtbuild.tenants import Repository

FIRST, GRID, TUNE = "first", "grid", "tune"  # series of the records
BATCHES = (1, 2, 4, 8, 16)  # no more than the users of the load
STEPS = (256, 512, 1024, 2048, 4096)
SHARE = 0.95  # of the grid's best goodput
KNOBS = ("max_batch_size", "max_num_tokens")
ROUNDS = 3
PART = 5  # tune has the grid's runs over this
WANTED = 60  # requests of a run
LEAST_S, WARMUP_S = 9.0, 2.0
_FIRST_S = 25.0
_START_S = 12.0  # of a server; no run is begun that would not end in time


class OutOfTime(Exception):
    """This call's minutes are over."""


def cells(knobs: Sequence[Knob]) -> list[Settings]:
    """Every combination; what the plan has is left out of the settings, as tune names them."""
    found = []
    for values in itertools.product(*(knob.values for knob in knobs)):
        chosen = zip(knobs, values, strict=True)
        found.append({knob.name: value for knob, value in chosen if value != knob.begin})
    return found


@dataclass(frozen=True)
class Terms:
    """What every trial is measured by."""

    budget: Budget
    run_s: float


def terms_of(first: Record) -> Terms:
    """Terms by which a run on this machine says something.

    Raises:
        MeasureError: the first run has too few requests.
    """
    group = first.metrics["all"]
    median_s, requests_per_s = group["ttft_s"]["p50"]["value"], group["requests_per_s"]["value"]
    if not median_s or not requests_per_s:
        raise MeasureError(
            f"in {_FIRST_S:g} s the plan as it stands answered too few requests",
            "less load: --shape, --traffic; or say --budget and --duration",
        )
    run_s = WARMUP_S + max(LEAST_S, math.ceil(WANTED / requests_per_s))
    return Terms(Budget(float(f"{median_s:.2g}")), run_s)


class Measured:
    """Trials of one series that are kept: what is in the records is not measured again."""

    def __init__(self, trials: Trials, store: Store, terms: Terms, until: float) -> None:
        self._trials, self._run_s, self._until = trials, terms.run_s, until
        self._kept: dict[str, list[Trial]] = {}
        for record in records(store, trials.series):
            self._kept.setdefault(record.label, []).append(trial_of(record, {}, terms.budget))

    def __call__(self, settings: Settings) -> Trial:
        """The next trial of these settings."""
        kept = self._kept.get(label_of(settings), [])
        if kept:
            return replace(kept.pop(0), settings=settings)
        if time.monotonic() + _START_S + self._run_s > self._until:
            raise OutOfTime
        trial = self._trials.measure(settings)
        score = trial.error or f"goodput {trial.score:.2f}/s"
        print(f"· {self._trials.series} {label_of(settings)}: {score}", file=sys.stderr)
        return trial


def records(store: Store, series: str) -> list[Record]:
    """The complete runs of a series."""
    rows = store.runs() if store.path.is_file() else []
    return [store.read(row.run_id) for row in rows if row.series == series and row.complete]


def table(grid: Sequence[Trial], knobs: Sequence[Knob]) -> Iterator[str]:
    """The grid's goodput as lines of a Markdown table, one knob down and the other across."""
    down, across = knobs
    found = {label_of(trial.settings): trial for trial in grid}
    yield f"| {down.name} \\ {across.name} | " + " | ".join(map(str, across.values)) + " |"
    yield "|---" * (1 + len(across.values)) + "|"
    for value in down.values:
        row = []
        for other in across.values:
            chosen = ((down, value), (across, other))
            settings = {knob.name: item for knob, item in chosen if item != knob.begin}
            score = found[label_of(settings)].score
            row.append("–" if score is None else f"{score:.2f}")
        yield f"| {value} | " + " | ".join(row) + " |"


def prove(make: Callable[[str, Terms], Trials], store: Store, terms: Terms, until: float) -> bool:
    """Measures what is missing, prints the tables; whether tune's choice is as good as the grid's best.

    Raises:
        OutOfTime: more is left to do.
    """
    with make(TUNE, terms) as tuned, make(GRID, terms) as grid:
        knobs = [
            replace(knob, values=tuple(sorted({*values, knob.begin})))
            for knob, values in zip(grid.knobs, (BATCHES, STEPS), strict=True)
        ]
        every = cells(knobs)
        tuning = search(Measured(tuned, store, terms, until), knobs, most_trials=len(every) // PART)
        another = Measured(grid, store, terms, until)
        measured = [another(settings) for settings in every]
        chosen = next(trial for trial in measured if trial.settings == tuning.best.settings)
        best = max(measured, key=lambda trial: trial.score or 0.0)
        # Measured again in turns: the best of many is the luckiest, too, and a machine has slow minutes.
        rounds = [[another(cell.settings) for cell in (chosen, best)] for _ in range(ROUNDS)]
    print("\n".join(table(measured, knobs)))
    print(f"grid: {len(measured)} runs; tune: {len(tuning.trials)} runs; again {ROUNDS} times in turns:")
    choice, winner = ([trial.score or 0.0 for trial in column] for column in zip(*rounds, strict=True))
    for name, cell, scores in (("best of the grid", best, winner), ("tune's choice", chosen, choice)):
        print(f"  {name}, {label_of(cell.settings)}: " + ", ".join(f"{score:.2f}/s" for score in scores))
    if not all(choice + winner):
        print(f"not all meet {terms.budget}: a larger --budget, or less load")
        return False
    share, spread = sum(choice) / sum(winner), (max(choice) - min(choice)) / max(choice)
    print(f"{share:.2f} of the grid's best; repeats of the choice are {spread:.0%} apart")
    return share >= min(SHARE, 1 - spread)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments, does the next piece; 0: as good as the grid, 1: not, 3: more is left to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("repository", type=Path, help="a repository of the target local with one model")
    parser.add_argument("folder", type=Path, help="keeps what was done")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="of TTFT P95")
    parser.add_argument("--shape", default="closed:16")
    parser.add_argument("--traffic", action="append", help="as of trtbuild bench; default 50/24 and 400/12")
    parser.add_argument("--duration", type=float, metavar="SECONDS", help="of a run")
    parser.add_argument("--minutes", type=float, default=60.0, help="of this call")
    asked = parser.parse_args(arguments)

    until = time.monotonic() + 60 * asked.minutes
    repository = Repository.open(asked.repository)
    model = repository.plan.llms[0].name
    traffic = tuple(parse_traffic(item) for item in asked.traffic or ("50/24", "400/12"))
    flow = Flow(model=model, shape=parse_shape(asked.shape), traffic=traffic)
    asked.folder.mkdir(parents=True, exist_ok=True)
    store = Store(asked.folder / "records.sqlite")

    def make(series: str, terms: Terms) -> Trials:
        load = LoadSpec(flows=(flow,), duration_s=terms.run_s, warmup_s=WARMUP_S)
        return Trials(repository, model, load, terms.budget, store, only=KNOBS, series=series)

    if asked.budget and asked.duration:
        terms = Terms(Budget(asked.budget), asked.duration)
    else:
        terms = terms_of(_first(make, store))
        budget = Budget(asked.budget) if asked.budget else terms.budget
        terms = Terms(budget, asked.duration or terms.run_s)
    print(f"· {terms.budget}; runs of {terms.run_s:g} s", file=sys.stderr)
    try:
        return 0 if prove(make, store, terms, until) else 1
    except OutOfTime:
        print("· more is left to do: the same command goes on", file=sys.stderr)
        return 3


def _first(make: Callable[[str, Terms], Trials], store: Store) -> Record:
    """The run of the plan as it stands."""
    if not records(store, FIRST):
        with make(FIRST, Terms(Budget(1.0), _FIRST_S)) as trials:
            failed = trials.measure({}).error
        if failed:
            raise MeasureError(f"the plan as it stands cannot be measured: {failed}")
    return records(store, FIRST)[0]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrtbuildError as error:
        sys.exit(str(error))
