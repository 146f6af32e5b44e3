"""``scripts/prove-tune``: what ``tune`` finds, against every cell of a grid that it may choose from.

The grid's runs are kept in the folder, tune's beside them. A call does what is not there yet, as long as
``--minutes`` last; the last call prints the tables.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from trtbuild.measure.load.flags import parse_shape, parse_traffic
from trtbuild.measure.load.spec import Flow, LoadSpec
from trtbuild.measure.records.store import Store
from trtbuild.measure.sweep import Budget
from trtbuild.measure.tune.knobs import Knob, Settings
from trtbuild.measure.tune.run import Trials, label_of, trial_of
from trtbuild.measure.tune.search import Trial, search
from trtbuild.tenants import Repository

GRID, TUNE = "grid", "tune"  # series of the records
BATCHES = (1, 2, 4, 8, 16)  # no more than the users of the load
STEPS = (256, 512, 1024, 2048, 4096)
SHARE = 0.95  # of the grid's best goodput
PART = 5  # tune has the grid's runs over this
_START_S = 12.0  # of a server


class OutOfTime(Exception):
    """This call's minutes are over."""


def cells(knobs: Sequence[Knob]) -> list[Settings]:
    """Every combination; what the plan has is left out of the settings, as tune names them."""
    found = []
    for values in itertools.product(*(knob.values for knob in knobs)):
        chosen = zip(knobs, values, strict=True)
        found.append({knob.name: value for knob, value in chosen if value != knob.begin})
    return found


class Measured:
    """Trials of one series that are kept: what is in the records is not measured again."""

    def __init__(self, trials: Trials, store: Store, budget: Budget, run_s: float, until: float) -> None:
        self._trials, self._budget, self._run_s, self._until = trials, budget, run_s, until
        self._kept: dict[str, list[Trial]] = {}
        for run in store.runs() if store.path.is_file() else []:
            if run.series == trials.series and run.complete:
                trial = trial_of(store.read(run.run_id), {}, budget)
                self._kept.setdefault(run.label, []).append(trial)

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments, does the next piece; 0: as good as the grid, 1: not, 3: more is left to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("repository", type=Path, help="a repository of the target local with one model")
    parser.add_argument("folder", type=Path, help="keeps what was done")
    parser.add_argument("--budget", type=float, default=1.0, metavar="SECONDS", help="of TTFT P95")
    parser.add_argument("--shape", default="closed:16")
    parser.add_argument("--traffic", action="append", help="as of trtbuild bench; default 50/24 and 400/12")
    parser.add_argument("--duration", type=float, default=9.0, metavar="SECONDS", help="of a run")
    parser.add_argument("--minutes", type=float, default=60.0, help="of this call")
    asked = parser.parse_args(arguments)

    until = time.monotonic() + 60 * asked.minutes
    repository = Repository.open(asked.repository)
    model = repository.plan.llms[0].name
    traffic = tuple(parse_traffic(item) for item in asked.traffic or ("50/24", "400/12"))
    flow = Flow(model=model, shape=parse_shape(asked.shape), traffic=traffic)
    load = LoadSpec(flows=(flow,), duration_s=asked.duration, warmup_s=2.0)
    budget = Budget(asked.budget)
    asked.folder.mkdir(parents=True, exist_ok=True)
    store = Store(asked.folder / "records.sqlite")
    only = ("max_batch_size", "max_num_tokens")
    tuned, grid = (
        Trials(repository, model, load, budget, store, only=only, series=series) for series in (TUNE, GRID)
    )
    knobs = [
        replace(knob, values=tuple(sorted({*values, knob.begin})))
        for knob, values in zip(grid.knobs, (BATCHES, STEPS), strict=True)
    ]
    every = cells(knobs)
    with tuned, grid:
        try:
            one = Measured(tuned, store, budget, asked.duration, until)
            tuning = search(one, knobs, most_trials=len(every) // PART)
            another = Measured(grid, store, budget, asked.duration, until)
            measured = [another(settings) for settings in every]
            chosen = next(trial for trial in measured if trial.settings == tuning.best.settings)
            repeated = another(chosen.settings)  # the spread of one configuration measured twice
        except OutOfTime:
            print("· more is left to do: the same command goes on", file=sys.stderr)
            return 3
    print("\n".join(table(measured, knobs)))
    best = max(measured, key=lambda trial: trial.score or 0.0)
    again = [trial.score or 0.0 for trial in (chosen, repeated)]
    if not best.score or not all(again):
        print(f"nothing meets {budget}: a larger --budget, or less load")
        return 1
    # of the two, the mean: the grid's best is the luckiest of many already
    share, spread = sum(again) / 2 / best.score, (max(again) - min(again)) / max(again)
    print(
        f"grid: {len(measured)} runs, best {best.score:.2f}/s at {label_of(best.settings)}\n"
        f"tune: {len(tuning.trials)} runs, chose {label_of(chosen.settings)}\n"
        f"its choice in the grid {again[0]:.2f}/s, again {again[1]:.2f}/s: {share:.2f} of the best, "
        f"the two {spread:.0%} apart"
    )
    return 0 if share >= min(SHARE, 1 - spread) else 1


if __name__ == "__main__":
    sys.exit(main())
