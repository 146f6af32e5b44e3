"""``scripts/prove-prediction``: a run of few streams calibrates; other loads are predicted, then measured.

Everything is kept in a folder: the predictions before anything of them is measured, the runs in a file of
records. A call does what is not there yet, as long as ``--minutes`` last; the last call prints the table.

A shared machine is slower in one minute than in another. So the table also says how long each run's own steps
took, over what the calibration says of the same steps, and the error at that speed: that is the model's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trtbuild.measure.calibration import calibration_load, measured_requests, others_cores
from trtbuild.measure.load.flags import parse_traffic
from trtbuild.measure.load.spec import Closed, Flow, LoadSpec, Poisson
from trtbuild.measure.predicted import offered_by
from trtbuild.measure.records.record import Record
from trtbuild.measure.records.store import Store
from trtbuild.measure.server import MeasuredServer
from trtbuild.plan.latency.calibrate import slowness
from trtbuild.plan.latency.forecast import System, predicted
from trtbuild.plan.model import Plan
from trtbuild.simulate import deployment_of_run

REPEATS = 2
WANTED = 90  # requests of a run: a P95 takes 72
LEAST_S, WARMUP_S = 20.0, 4.0
BUSY = 0.5
# Lengths that differ, as users' do: equal ones end and begin in step, in rounds that no run repeats.
TRAFFIC = ("30/13", "45/24", "70/37", "110/18", "400/11")
ALLOWED = 0.15
MOST_BESIDE_CORES = 0.25  # of what else runs on the machine; a run beside more is no figure
_CALIBRATION = "calibration"
Figures = dict[str, float]  # by name, with its unit
_START_S = 20.0  # of a server; no run is begun that would not end in time


@dataclass(frozen=True)
class Verdict:
    """One figure of one load. ``error`` is that of the prediction against the runs' mean; ``spread`` is the
    difference of the runs over it. ``at_speed`` is the prediction with steps as slow as those of the runs."""

    load: str
    figure: str
    predicted: float
    measured: tuple[float, ...]
    at_speed: float

    @property
    def mean(self) -> float:
        return sum(self.measured) / len(self.measured)

    @property
    def error(self) -> float:
        return self.predicted / self.mean - 1

    @property
    def error_at_speed(self) -> float:
        return self.at_speed / self.mean - 1

    @property
    def spread(self) -> float:
        return (max(self.measured) - min(self.measured)) / self.mean

    @property
    def kept(self) -> bool:
        """Whether the prediction is as near as is asked: 15 %, or the spread where that is larger."""
        return abs(self.error) <= max(ALLOWED, self.spread)


def loads(
    system: System, model: str, *, users: Sequence[int], rate: float | None, traffic: Sequence[str], seed: int
) -> dict[str, LoadSpec]:
    """The loads to predict, by name: as long as a P95 needs requests.

    Args:
        rate: of the open loop, 1/s; None: `BUSY` of the requests that the most users are predicted to get
            answered.
    """
    mixed = tuple(parse_traffic(item) for item in traffic)

    def load(shape: Closed | Poisson, length_s: float = LEAST_S) -> LoadSpec:
        flow = Flow(model=model, shape=shape, traffic=mixed)
        return LoadSpec(flows=(flow,), duration_s=WARMUP_S + length_s, warmup_s=WARMUP_S, seed=seed)

    found, answered_per_s = {}, 1.0
    for count in users:
        answered_per_s = predicted(
            system, *offered_by(load(Closed(users=count), 10 * LEAST_S))
        ).requests_per_s
        length_s = max(LEAST_S, WANTED / answered_per_s)
        found[f"{count} users"] = load(Closed(users=count), length_s)
    rate = float(f"{BUSY * answered_per_s:.2g}") if rate is None else rate
    found[f"{rate:g} a second"] = load(Poisson(rate_per_s=rate), max(LEAST_S, WANTED / rate))
    return found


def figures_of(record: Record) -> Figures:
    """What a run says of each figure for which it has requests enough."""
    group = record.metrics["all"]
    values = {
        "TTFT P50 ms": (1e3, group["ttft_s"]["p50"]),
        "TTFT P95 ms": (1e3, group["ttft_s"]["p95"]),
        "TPOT P50 ms": (1e3, group["tpot_s"]["p50"]),
        "tokens/s": (1.0, group["tokens_out_per_s"]),
    }
    return {name: unit * one["value"] for name, (unit, one) in values.items() if one["value"] is not None}


def predict(system: System, load: LoadSpec) -> Figures:
    """Each figure of a load."""
    row = predicted(system, *offered_by(load))
    return {
        "TTFT P50 ms": 1e3 * row.ttft_s[50].value,
        "TTFT P95 ms": 1e3 * row.ttft_s[95].value,
        "TPOT P50 ms": 1e3 * row.tpot_s[50].value,
        "tokens/s": row.tokens_out_per_s.value,
    }


@dataclass(frozen=True)
class Measured:
    """The runs of one load; ``slowness`` of each is its step times over the calibrated ones."""

    load: LoadSpec
    runs: tuple[Figures, ...]
    slowness: tuple[float, ...]

    def verdicts(self, name: str, system: System, predictions: Figures) -> Iterator[Verdict]:
        """Every figure for which the runs have requests enough."""
        slowed = [replace(system, cost=system.cost.scaled(factor)) for factor in self.slowness]
        at_speed = [predict(one, self.load) for one in slowed]
        for figure, value in predictions.items():
            pairs = [
                (run[figure], own[figure])
                for run, own in zip(self.runs, at_speed, strict=True)
                if figure in run
            ]
            if pairs:
                values, own = zip(*pairs, strict=True)
                yield Verdict(name, figure, value, values, sum(own) / len(own))


def measured(system: System, load: LoadSpec, records: Sequence[Record]) -> Measured:
    """What the runs of a load say."""
    limit = system.limits.max_num_tokens
    slow = [slowness(measured_requests(one), system.cost, max_num_tokens=limit) for one in records]
    return Measured(load, tuple(map(figures_of, records)), tuple(slow))


def table(rows: Sequence[Verdict]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| load | figure | predicted | measured | error | spread | within | error at the runs' speed |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        values = ", ".join(f"{value:.3g}" for value in row.measured)
        yield (
            f"| {row.load} | {row.figure} | {row.predicted:.3g} | {values} | {row.error:+.0%} "
            f"| {row.spread:.0%} | {'yes' if row.kept else 'no'} | {row.error_at_speed:+.0%} |"
        )


def beside_cores(record: Record) -> float:
    """What else ran on the machine in the run's window, in cores on average."""
    begin_s, end_s = record.window_s
    values = [cores for t_s, cores in others_cores(record) if begin_s <= t_s < end_s]
    return sum(values) / max(1, len(values))


def _runs(store: Store, label: str) -> list[Record]:
    """The complete runs of a label during which the machine did nothing else."""
    if not store.path.is_file():
        return []
    found = [run for run in store.runs() if run.label == label and run.complete]
    read = (store.read(run.run_id) for run in found)
    return [run for run in read if beside_cores(run) < MOST_BESIDE_CORES]


def _measure(repository: Path, store: Store, queue: Sequence[tuple[str, LoadSpec]], until: float) -> bool:
    """Measures in order until the time is up; says whether all was measured."""
    from trtbuild.measure.bench import bench
    from trtbuild.serve.server import start

    if not queue:
        return True
    if time.monotonic() + _START_S + queue[0][1].duration_s > until:
        return False
    with start(repository) as server:
        target = MeasuredServer(
            server.grpc_address, server.metrics_address, server.http_address, server.pid, repository
        )
        for label, load in queue:
            if time.monotonic() + load.duration_s > until:
                return False
            record = bench(target, load, store, label=label)
            beside = beside_cores(record)
            told = (
                ""
                if beside < MOST_BESIDE_CORES
                else f": {beside:.2f} cores worked for others, to be repeated"
            )
            print(f"· {label}: run {record.run_id} {record.state}{told}", file=sys.stderr)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments, does the next piece, prints; 0: all within, 1: not, 3: more is left to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("repository", type=Path, help="a repository of the target local with one model")
    parser.add_argument("folder", type=Path, help="keeps what was done")
    parser.add_argument("--users", default="1,8,16,32")
    parser.add_argument("--rate", type=float, help="requests a second of the open loop")
    parser.add_argument("--traffic", action="append", help="as of trtbuild bench; default: five lengths")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30.0, help="of this call")
    asked = parser.parse_args(arguments)

    until = time.monotonic() + 60 * asked.minutes
    model = Plan.model_validate_json((asked.repository / "plan.json").read_text()).llms[0].name
    asked.folder.mkdir(parents=True, exist_ok=True)
    store = Store(asked.folder / "records.sqlite")
    if not _runs(store, _CALIBRATION):
        first = [(_CALIBRATION, calibration_load(model))]
        if not _measure(asked.repository, store, first, until):
            return _more("the calibration")
    system = deployment_of_run(_runs(store, _CALIBRATION)[-1]).system
    wanted = loads(
        system,
        model,
        users=[int(word) for word in asked.users.split(",")],
        rate=asked.rate,
        traffic=asked.traffic or TRAFFIC,
        seed=asked.seed,
    )
    predictions = _predictions(asked.folder / "predictions.json", system, wanted)
    queue = [
        (name, load)
        for turn in range(REPEATS)
        for name, load in wanted.items()
        if len(_runs(store, name)) <= turn
    ]
    done = _measure(asked.repository, store, queue, until)
    found = {name: measured(system, load, _runs(store, name)) for name, load in wanted.items()}
    rows = [row for name, one in found.items() for row in one.verdicts(name, system, predictions[name])]
    print("\n".join(table(rows)))
    for name, one in found.items():
        factors = ", ".join(f"{factor:.2f}" for factor in one.slowness)
        print(f"{name}: steps took {factors} of the calibrated time")
    if not done:
        return _more("measurements")
    return 0 if all(row.kept for row in rows) else 1


def _predictions(path: Path, system: System, wanted: dict[str, LoadSpec]) -> dict[str, Figures]:
    """Made before the loads are measured, and kept: what is there is not made again."""
    kept: dict[str, Figures] = json.loads(path.read_text()) if path.is_file() else {}
    missing = {name: load for name, load in wanted.items() if name not in kept}
    if missing:
        kept |= {name: predict(system, load) for name, load in missing.items()}
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return {name: kept[name] for name in wanted}


def _more(what: str) -> int:
    print(f"· {what} are left: the same command goes on", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
