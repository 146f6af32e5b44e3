"""What a load does to a deployment: percentiles with error bars, and what keeps a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from trtbuild.catalog.latency import Spread
from trtbuild.errors import PlanError
from trtbuild.plan.latency.cost import StepCost
from trtbuild.plan.latency.fleet import simulate
from trtbuild.plan.latency.load import (
    ClosedLoop,
    Lengths,
    OpenLoop,
    Requests,
    Traffic,
    make_requests,
    poisson,
)
from trtbuild.plan.latency.replica import Limits
from trtbuild.plan.latency.sharing import SharedClock, shared_clock
from trtbuild.plan.latency.trace import Trace

_QUANTILES = (0.5, 0.95, 0.99)
_WARM_UP = 0.1  # of the requests, the first ones: the deployment fills
_CLOSER = 0.03  # a level is searched until it is known to 3 %


@dataclass(frozen=True)
class Mix:
    """Requests of one kind, and the pictures beside them."""

    isl: Lengths
    osl: Lengths
    limit: int | None = None
    prefixes: int = 0
    prefix_tokens: int = 0
    think_s: float = 0.0
    pictures_per_s: float = 0.0
    picture_s: float = 0.0

    def requests(self, count: int, seed: int) -> Requests:
        """``count`` requests of this mix, the same ones for the same seed."""
        return make_requests(
            count=count,
            isl=self.isl,
            osl=self.osl,
            generator=np.random.default_rng(seed),
            limit=self.limit,
            prefixes=self.prefixes,
            prefix_tokens=self.prefix_tokens,
        )


@dataclass(frozen=True)
class System:
    """Engines that serve a load; ``spreads`` say by which factors reality differs from the model."""

    cost: StepCost
    limits: Limits
    replicas: int = 1
    gpus_per_replica: float = 1.0
    spreads: dict[str, Spread] = field(default_factory=dict)


@dataclass(frozen=True)
class Level:
    """How much is asked: requests a second, or users who each wait for their answer."""

    rate: float | None = None
    users: int | None = None


@dataclass(frozen=True)
class Figure:
    """A predicted value with its error bar: where four of five published figures lie."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """What the model says about one level. Percentiles by their number, times in seconds."""

    level: Level
    requests: int
    ttft_s: dict[int, Figure]
    tpot_s: dict[int, Figure]
    latency_s: dict[int, Figure]
    queue_s: dict[int, float]
    tokens_out_per_s: Figure
    tokens_in_per_s: float
    requests_per_s: float
    mean_batch: float  # of one replica while it works
    busy_share: float
    pauses: int
    reused_share: float  # of the prompts' tokens
    picture_latency_s: dict[int, float]


def forecast(system: System, mix: Mix, level: Level, *, requests: int, seed: int = 1) -> Forecast:
    """Simulates a level as it is predicted, and as fast and as slow as published figures make likely.

    Raises:
        PlanError: a request that never runs, or more pictures than fit beside the language model.
    """
    middle = _Run(system, mix, level, requests, seed)
    steps = system.spreads.get("tpot")
    factors = () if steps is None else (steps.p10, steps.p90)
    sides = [
        _Run(replace(system, cost=system.cost.scaled(factor)), mix, level, requests, seed)
        for factor in factors
    ]
    first = system.spreads.get("ttft")
    return Forecast(
        level=level,
        requests=requests,
        ttft_s={q: _figure(q, middle.ttft_s, [side.ttft_s for side in sides], first) for q in _numbers()},
        tpot_s={q: _figure(q, middle.tpot_s, [side.tpot_s for side in sides], None) for q in _numbers()},
        latency_s={
            q: _figure(q, middle.latency_s, [side.latency_s for side in sides], None) for q in _numbers()
        },
        queue_s=_percentiles(middle.queue_s),
        tokens_out_per_s=_bar(middle.tokens_out_per_s, [side.tokens_out_per_s for side in sides]),
        tokens_in_per_s=middle.tokens_in_per_s,
        requests_per_s=middle.requests_per_s,
        mean_batch=middle.trace.token_s / middle.trace.busy_s,
        busy_share=middle.trace.busy_s / system.replicas / middle.own_span_s,
        pauses=middle.trace.pauses,
        reused_share=middle.trace.reused_tokens / middle.prompt_tokens,
        picture_latency_s=_percentiles(middle.pictures_s),
    )


class _Run:
    """One simulation with the first tenth of the requests left out of the figures."""

    def __init__(self, system: System, mix: Mix, level: Level, count: int, seed: int) -> None:
        requests = mix.requests(count, seed)
        # on its way to the engine a request of a closed loop is nobody's work, as while its user thinks
        outside_s = system.cost.rates.request_s
        traffic = _traffic(requests, replace(mix, think_s=mix.think_s + outside_s), level, seed)
        clock = _clock(mix, traffic, seed)
        if clock is not None and isinstance(traffic.load, OpenLoop):
            arrivals = clock.to_own(np.asarray(traffic.load.arrivals_s)).tolist()
            traffic = Traffic(requests, OpenLoop(arrivals))
        self.trace = trace = simulate(
            traffic, cost=system.cost, limits=system.limits, replicas=system.replicas
        )
        arrived, started, first, ended = (_wall(column, clock) for column in _columns(trace))
        self.own_span_s = max(trace.times.ended) - min(trace.times.arrived)
        self.prompt_tokens = sum(requests.isl)
        self.pictures_s = clock.picture_latency_s if clock is not None else np.array([])
        osl, isl = np.asarray(requests.osl), np.asarray(requests.isl)
        counted = np.arange(count) >= int(count * _WARM_UP)
        self.ttft_s = (first - arrived)[counted] + outside_s
        self.queue_s = (started - arrived)[counted]
        self.latency_s = (ended - arrived)[counted] + outside_s
        several = counted & (osl > 1)
        self.tpot_s = (ended - first)[several] / (osl[several] - 1)
        # while the load lasts: what ends after the last arrival is the tail of an emptying server
        begin, end = float(arrived[counted].min()), float(arrived.max())
        inside = (ended >= begin) & (ended <= end)
        span = end - begin
        if span <= 0 or not inside.any():
            inside, span = np.ones(count, bool), float(ended.max() - arrived.min())
        self.requests_per_s = float(inside.sum()) / span
        self.tokens_out_per_s = float(osl[inside].sum()) / span
        self.tokens_in_per_s = float(isl[inside].sum()) / span


def _columns(trace: Trace) -> list[NDArray[np.float64]]:
    times = trace.times
    return [np.asarray(column) for column in (times.arrived, times.started, times.first, times.ended)]


def _wall(own_s: NDArray[np.float64], clock: SharedClock | None) -> NDArray[np.float64]:
    return own_s if clock is None else clock.to_wall(own_s)


def _traffic(requests: Requests, mix: Mix, level: Level, seed: int) -> Traffic:
    if level.users is not None:
        return Traffic(requests, ClosedLoop(level.users, mix.think_s))
    return poisson(requests, rate=level.rate or 1.0, generator=np.random.default_rng(seed + 1))


def _clock(mix: Mix, traffic: Traffic, seed: int) -> SharedClock | None:
    if not mix.pictures_per_s:
        return None
    horizon_s = 3600.0
    if isinstance(traffic.load, OpenLoop):
        horizon_s = max(60.0, 2 * traffic.load.arrivals_s[-1])
    return shared_clock(
        pictures_per_s=mix.pictures_per_s,
        picture_s=mix.picture_s,
        horizon_s=horizon_s,
        generator=np.random.default_rng(seed + 2),
    )


def _numbers() -> list[int]:
    return [round(100 * q) for q in _QUANTILES]


def _percentiles(values: NDArray[np.float64]) -> dict[int, float]:
    if not len(values):
        return {}
    return {number: float(np.percentile(values, number)) for number in _numbers()}


def _figure(
    number: int, values: NDArray[np.float64], sides: Sequence[NDArray[np.float64]], direct: Spread | None
) -> Figure:
    if not len(values):
        return Figure(0.0, 0.0, 0.0)
    value = float(np.percentile(values, number))
    others = [float(np.percentile(side, number)) for side in sides]
    if direct is not None:
        others += [value * direct.p10, value * direct.p90]
    return _bar(value, others)


def _bar(value: float, others: Sequence[float]) -> Figure:
    return Figure(value, min([value, *others]), max([value, *others]))


@dataclass(frozen=True)
class Budget:
    """The longest time to the first token, and of how many of a hundred requests it is kept."""

    ttft_s: float
    percentile: int = 95

    def kept(self, system: System, mix: Mix, level: Level, requests: int, seed: int) -> bool:
        """Whether a level keeps it, without error bars."""
        run = _Run(system, mix, level, requests, seed)
        return float(np.percentile(run.ttft_s, self.percentile)) <= self.ttft_s


def most_users(system: System, mix: Mix, budget: Budget, *, requests: int, seed: int = 1) -> int:
    """The largest number of users with which a budget is kept; 0: not even one."""
    limit = system.limits.max_batch_size * system.replicas * 4

    def kept(users: float) -> bool:
        return budget.kept(system, mix, Level(users=int(users)), max(requests, 5 * int(users)), seed)

    if not kept(1):
        return 0
    return int(_largest(kept, 1, limit, whole=True))


def most_rate(system: System, mix: Mix, budget: Budget, *, requests: int, seed: int = 1) -> float:
    """The most requests a second with which a budget is kept; 0: not even one now and then."""
    capacity = capacity_per_s(system, mix, requests=requests, seed=seed)

    def kept(rate: float) -> bool:
        return budget.kept(system, mix, Level(rate=rate), requests, seed)

    if not kept(capacity * 0.01):
        return 0.0
    return _largest(kept, capacity * 0.01, capacity)


def capacity_per_s(system: System, mix: Mix, *, requests: int, seed: int = 1) -> float:
    """Requests a second of engines that always have a full batch."""
    users = system.limits.max_batch_size * system.replicas
    run = _Run(system, replace(mix, think_s=0.0), Level(users=users), max(requests, 4 * users), seed)
    return run.requests_per_s


def _largest(kept: Callable[[float], bool], low: float, high: float, *, whole: bool = False) -> float:
    """Bisection between a level that keeps the budget and one beyond which none is asked for."""
    if kept(high):
        return high
    while high - low > (1 if whole else _CLOSER * low):
        middle = (low + high) / 2
        middle = float(int(middle)) if whole else middle
        if kept(middle):
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True)
class Choice:
    """Limits of the engine with the rate at which they keep the budget."""

    max_batch_size: int
    max_num_tokens: int
    rate: float


def best_limits(
    system: System,
    mix: Mix,
    budget: Budget,
    *,
    most_batch: int,
    most_tokens: int,
    requests: int,
    seed: int = 1,
) -> Choice | None:
    """The limits that carry the most requests a second within a budget, one parameter after the other.

    Batches are powers of two up to ``most_batch``, steps from a chunk of 256 tokens up to ``most_tokens``.
    Of limits that carry as much within 2 %, the smaller ones: they leave memory. None: no limits keep it.
    """

    def carried(batch: int, tokens: int) -> float:
        limits = replace(system.limits, max_batch_size=batch, max_num_tokens=tokens)
        if tokens < batch + limits.tokens_per_block:
            return 0.0
        if not limits.chunked_context and tokens < system.limits.max_num_tokens:
            return 0.0
        return most_rate(replace(system, limits=limits), mix, budget, requests=requests, seed=seed)

    batches = sorted({min(most_batch, 1 << power) for power in range(11)})
    steps = sorted({min(most_tokens, 256 << power) for power in range(7)})
    batch, tokens = system.limits.max_batch_size, system.limits.max_num_tokens
    rates: dict[tuple[int, int], float] = {}
    for _ in range(2):
        found = {size: carried(size, max(tokens, size + system.limits.tokens_per_block)) for size in batches}
        batch = _smallest_near_best(found)
        found = {size: carried(batch, size) for size in steps}
        tokens = _smallest_near_best(found)
        rates[batch, tokens] = found[tokens]
    (batch, tokens), rate = max(rates.items(), key=lambda item: item[1])
    return Choice(batch, tokens, rate) if rate else None


def _smallest_near_best(found: dict[int, float]) -> int:
    best = max(found.values())
    return min(size for size, rate in found.items() if rate >= 0.98 * best)


def replicas_for(
    system: System, mix: Mix, rate: float, budget: Budget, *, requests: int, seed: int = 1, most: int = 1000
) -> int:
    """The fewest replicas behind least-connections that keep a budget at a rate.

    Raises:
        PlanError: even one request alone breaks the budget.
    """
    alone = most_rate(replace(system, replicas=1), mix, budget, requests=requests, seed=seed)
    if not alone:
        raise PlanError(
            f"one request alone takes longer to its first token than {budget.ttft_s * 1e3:g} ms",
            "a longer budget, shorter prompts, a faster GPU, or --tp",
        )
    count = max(1, int(rate / alone * 0.8))
    while count < most:
        system = replace(system, replicas=count)
        if budget.kept(system, mix, Level(rate=rate), max(requests, 200 * count), seed):
            return count
        count = count + max(1, count // 20)
    return most


def cost_per_million(*, price_per_gpu_hour: float, gpus: float, tokens_per_s: float) -> float:
    """Price of a million tokens at a rate of tokens."""
    return price_per_gpu_hour * gpus / 3600 / tokens_per_s * 1e6
