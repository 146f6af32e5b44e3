"""How much load a server carries within a budget: raise it until the budget breaks, step back, confirm."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trtbuild.errors import MeasureError, ServeError
from trtbuild.measure import stats
from trtbuild.measure.bench import bench
from trtbuild.measure.load.generator import Progress
from trtbuild.measure.load.spec import Closed, LoadSpec, Poisson, Slo
from trtbuild.measure.metrics import LATENCIES, observed
from trtbuild.measure.records.record import Record
from trtbuild.measure.records.store import Store
from trtbuild.measure.server import MeasuredServer
from trtbuild.measure.stats import Estimate

By = Literal["users", "rate"]
RATE_STEP = 1.1  # a rate is found to within this factor
LONGER = (1, 2, 4)  # times the duration, until a level has requests enough for its percentile
MOST_FAILED = 0.01  # share of requests that may fail at a level that carries


@dataclass(frozen=True)
class Budget:
    """A limit on a latency's percentile."""

    limit_s: float
    metric: str = "ttft_s"
    quantile: float = 0.95

    def __str__(self) -> str:
        title = next(metric.title for metric in LATENCIES if metric.name == self.metric)
        return f"{title} P{100 * self.quantile:g} ≤ {1e3 * self.limit_s:g} ms"


@dataclass
class Level:
    """One load, measured once or several times; figures are of all its runs together."""

    load: float
    budget: Budget
    records: list[Record] = field(default_factory=list)

    @property
    def figure(self) -> Estimate:
        """The budget's percentile over all runs, with its interval."""
        metric = next(one for one in LATENCIES if one.name == self.budget.metric)
        requests = [one for record in self.records for one in record.measured()]
        return stats.percentile(observed(metric, requests), self.budget.quantile)

    @property
    def failed(self) -> float:
        """Share of requests that did not end well."""
        measured = [one for record in self.records for one in record.measured()]
        return sum(one.outcome != "ok" for one in measured) / max(1, len(measured))

    @property
    def meets(self) -> bool:
        figure = self.figure
        if figure.value is None or figure.at_least:
            return False
        return figure.value <= self.budget.limit_s and self.failed <= MOST_FAILED

    @property
    def over(self) -> tuple[int, int]:
        """How many requests took longer than the limit, of how many that ended well."""
        metric = next(one for one in LATENCIES if one.name == self.budget.metric)
        requests = [one for record in self.records for one in record.measured() if one.outcome == "ok"]
        values = [value for one in requests for value in metric.values(one) if value is not None]
        return sum(value > self.budget.limit_s for value in values), len(values)

    @property
    def surely_over(self) -> bool:
        """Whether so many are that the percentile must be, be they too few to say what it is."""
        from scipy.stats import binom

        over, count = self.over
        return over > 0 and binom.sf(over - 1, count, 1 - self.budget.quantile) <= (1 - stats.CONFIDENCE) / 2

    @property
    def sure(self) -> bool:
        """Whether the interval lies on one side of the limit."""
        figure = self.figure
        if figure.value is None:
            return self.surely_over
        if self.meets:
            return figure.high is not None and figure.high <= self.budget.limit_s
        return figure.low is not None and figure.low > self.budget.limit_s

    def rate(self, name: str) -> float:
        """The mean over the runs of a rate, such as ``tokens_out_per_s``."""
        values = [(record.metrics["all"].get(name) or {}).get("value") or 0.0 for record in self.records]
        return sum(values) / max(1, len(values))

    @property
    def latency_s(self) -> float:
        """Mean end-to-end latency."""
        values = [record.metrics["all"]["latency_s"]["mean"]["value"] or math.inf for record in self.records]
        return float(sum(values) / len(values))


@dataclass(frozen=True)
class SweepResult:
    """``safe`` is None where no level meets the budget; then ``nearest`` is the one that misses it least."""

    budget: Budget
    by: By
    levels: tuple[Level, ...]
    safe: Level | None
    nearest: Level
    knee: Level
    series: str = ""

    def as_json(self) -> dict[str, Any]:
        rows = [
            {
                "load": level.load, "runs": [record.run_id for record in level.records], "meets": level.meets,
                "sure": level.sure, "figure_s": level.figure.as_json(), "failed": level.failed,
                "tokens_out_per_s": level.rate("tokens_out_per_s"),
                "requests_per_s": level.rate("requests_per_s"),
            }
            for level in self.levels
        ]  # fmt: skip
        return {
            "series": self.series, "budget": str(self.budget), "by": self.by, "levels": rows,
            "safe": None if self.safe is None else self.safe.load, "nearest": self.nearest.load,
            "knee": self.knee.load,
        }  # fmt: skip


def find_safe(
    measure: Callable[[Level], None],
    budget: Budget,
    *,
    by: By,
    start: float,
    most: float,
    least: float = 1.0,
    repeats: int = 3,
) -> SweepResult:
    """The highest level that meets the budget, confirmed.

    Doubles from ``start`` until the budget breaks or ``most`` is reached, halves down to ``least`` if the
    first level breaks it already, bisects between, then repeats the level found until it has ``repeats``
    runs; if it does not hold, it goes on below it.

    Args:
        measure: adds one run to a level.
    """
    levels: dict[float, Level] = {}

    def at(load: float) -> Level:
        if load not in levels:
            levels[load] = Level(load, budget)
            measure(levels[load])
        return levels[load]

    good, bad = _bracket(at, start, most, least)
    safe = None
    while good is not None and safe is None:
        good = _bisected(at, good, bad, by)
        if _holds(levels[good], measure, repeats):
            safe = levels[good]
        else:
            bad = good
            good = max((load for load, level in levels.items() if load < bad and level.meets), default=None)
    ordered = tuple(levels[load] for load in sorted(levels))
    return SweepResult(budget, by, ordered, safe, _nearest(ordered), knee(ordered))


def _nearest(levels: Sequence[Level]) -> Level:
    """Misses the budget least: by its percentile; by how many are over where some have too few for that."""
    if all(level.figure.value is not None or level.failed > MOST_FAILED for level in levels):
        return min(levels, key=lambda level: level.figure.value or math.inf)
    return min(levels, key=lambda level: (level.over[0] / max(1, level.over[1]), level.load))


def _bracket(
    at: Callable[[float], Level], start: float, most: float, least: float
) -> tuple[float | None, float | None]:
    load = start
    if at(load).meets:
        while load < most:
            higher = min(most, 2 * load)
            if not at(higher).meets:
                return load, higher
            load = higher
        return load, None
    while load > least:
        lower = max(least, load / 2 if least < 1 else math.floor(load / 2))
        if at(lower).meets:
            return lower, load
        load = lower
    return None, load


def _bisected(at: Callable[[float], Level], good: float, bad: float | None, by: By) -> float:
    """The highest level that meets, between one that does and one that does not."""
    while bad is not None:
        between = _middle(good, bad, by)
        if between is None:
            break
        if at(between).meets:
            good = between
        else:
            bad = between
    return good


def _middle(good: float, bad: float, by: By) -> float | None:
    if by == "users":
        middle = math.floor((good + bad) / 2)
        return float(middle) if middle not in (good, bad) else None
    return math.sqrt(good * bad) if bad / good > RATE_STEP else None


def _holds(level: Level, measure: Callable[[Level], None], repeats: int) -> bool:
    while len(level.records) < repeats and level.meets:
        measure(level)
    return level.meets


def knee(levels: Sequence[Level]) -> Level:
    """The level of the most power, tokens a second over latency (Kleinrock 1979)."""
    return max(levels, key=lambda level: level.rate("tokens_out_per_s") / level.latency_s)


def in_words(level: Level, by: By) -> str:
    """A level as a message names it: ``1 user``, ``8 users``, ``0.5 requests/s``."""
    if by == "rate":
        return f"{level.load:g} requests/s"
    return f"{level.load:g} user{'' if level.load == 1 else 's'}"


def at_level(load: LoadSpec, value: float, by: By) -> LoadSpec:
    """The load with so many users or requests a second on its first flow; others stay."""
    shape = Closed(users=int(value)) if by == "users" else Poisson(rate_per_s=value)
    first = load.flows[0].model_copy(update={"shape": shape})
    return load.model_copy(update={"flows": (first, *load.flows[1:])})


def _stopped(level: Level, by: By, why: str, series: str, run_id: str) -> MeasureError:
    return MeasureError(
        f"the server stopped answering at {in_words(level, by)}: {why}",
        f"what was measured is kept as series {series}: trtbuild report {run_id}",
    )


def _too_short(level: Level, by: By, duration_s: float) -> MeasureError:
    """A level whose runs together have too few requests; says how long each would have to be."""
    needed, runs = stats.least_count(level.budget.quantile), sum(LONGER)
    seen = sum(len(record.measured()) for record in level.records)
    measured_s = sum(record.window_s[1] - record.window_s[0] for record in level.records)
    long = (
        f"{math.ceil(1.2 * measured_s * needed / seen / runs + level.records[0].window_s[0])}"
        if seen
        else "N"
    )
    return MeasureError(
        f"{in_words(level, by)}: {level.figure.why}, in {len(LONGER)} runs, the longest of "
        f"{LONGER[-1] * duration_s:g} s",
        f"--duration {long}",
        "a lower --percentile, shorter answers, or --from a higher level",
    )


def sweep(
    server: MeasuredServer,
    load: LoadSpec,
    budget: Budget,
    store: Store,
    *,
    by: By = "users",
    start: float = 1.0,
    most: float = 256.0,
    least: float = 1.0,
    repeats: int = 3,
    label: str = "",
    on_level: Callable[[Level], None] = lambda level: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> SweepResult:
    """See `find_safe`; every run is recorded, all under one series.

    A run that has too few requests for the budget's percentile is made longer, up to four times.

    Raises:
        MeasureError: the server died, or even the longest run has too few requests.
    """
    series = secrets.token_hex(4)
    if budget.metric == "ttft_s" and load.slo == Slo():
        load = load.model_copy(update={"slo": Slo(ttft_s=budget.limit_s)})

    last: list[str] = []

    def measure(level: Level) -> None:
        for longer in LONGER:
            spec = at_level(load, level.load, by).model_copy(update={"duration_s": longer * load.duration_s})
            name = f"{label} {level.load:g}".strip()
            try:
                record = bench(
                    server, spec, store, label=name, kind="sweep", series=series, on_progress=on_progress
                )
            except ServeError as error:  # before the load began
                if not last:
                    raise
                raise _stopped(level, by, error.message, series, last[-1]) from error
            last.append(record.run_id)
            if not record.complete:
                raise _stopped(level, by, record.why, series, record.run_id)
            level.records.append(record)
            enough = level.figure.value is not None or level.failed > MOST_FAILED or level.surely_over
            if enough:
                break
        else:
            raise _too_short(level, by, load.duration_s)
        on_level(level)

    found = find_safe(measure, budget, by=by, start=start, most=most, least=least, repeats=repeats)
    return SweepResult(**{**vars(found), "series": series})
