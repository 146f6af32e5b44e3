"""What a load does to a deployment: percentiles with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from trtbuild.catalog.latency import Spread
from trtbuild.errors import PlanError
from trtbuild.plan.latency.cost import StepCost
from trtbuild.plan.latency.fleet import simulate
from trtbuild.plan.latency.load import ClosedLoop, OpenLoop, Traffic
from trtbuild.plan.latency.mix import Level, Mix, Offered, offered
from trtbuild.plan.latency.replica import Limits
from trtbuild.plan.latency.sharing import SharedClock, shared_clock
from trtbuild.plan.latency.trace import Trace

_QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class System:
    """Engines that serve a load; ``spreads`` say by which factors reality differs from the model.

    ``scatter`` are factors, each as likely as the others, by which one time to the first token differs from
    the next under the same conditions: a percentile is one of the scattered times.
    """

    cost: StepCost
    limits: Limits
    replicas: int = 1
    gpus_per_replica: float = 1.0
    spreads: dict[str, Spread] = field(default_factory=dict)
    scatter: tuple[float, ...] = (1.0,)


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
    return predicted(system, offered(mix, level, requests, seed), level)


def predicted(system: System, load: Offered, level: Level) -> Forecast:
    """As `forecast`, of a load that is given request by request; ``level`` names it.

    Raises:
        PlanError: as `forecast`; and where no request begins in the load's window.
    """
    middle = Outcome(system, load)
    steps = system.spreads.get("tpot")
    factors = () if steps is None else (steps.p10, steps.p90)
    sides = [Outcome(replace(system, cost=system.cost.scaled(factor)), load) for factor in factors]
    first = system.spreads.get("ttft")
    return Forecast(
        level=level,
        requests=middle.requests,
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


class Outcome:
    """One simulation; the first requests are left out of the figures."""

    def __init__(self, system: System, load: Offered) -> None:
        traffic, requests = load.traffic, load.traffic.requests
        # on its way to the engine a request of a closed loop is nobody's work, as while its user thinks
        outside_s = system.cost.rates.request_s
        if isinstance(traffic.load, ClosedLoop):
            users = traffic.load
            traffic = Traffic(requests, replace(users, think_s=users.think_s + outside_s))
        clock = _clock(load)
        if clock is not None and isinstance(traffic.load, OpenLoop):
            arrivals = clock.to_own(np.asarray(traffic.load.arrivals_s)).tolist()
            traffic = Traffic(requests, OpenLoop(arrivals))
        self.trace = trace = simulate(
            traffic, cost=system.cost, limits=system.limits, replicas=system.replicas
        )
        arrived, started, first, ended = (_wall(column, clock) for column in _columns(trace))
        sent = ~np.isnan(arrived)
        self.own_span_s = float(np.nanmax(trace.times.ended) - np.nanmin(trace.times.arrived))
        self.requests = int(sent.sum())
        self.pictures_s = clock.picture_latency_s if clock is not None else np.array([])
        osl, isl = np.asarray(requests.osl), np.asarray(requests.isl)
        self.prompt_tokens = int(isl[sent].sum())
        if load.end_s is None:
            counted = sent & (np.arange(len(requests)) >= load.warm_up)
        else:
            counted = (arrived >= load.warm_up_s) & (arrived < load.end_s)
        if not counted.any():
            end_s = load.end_s or self.own_span_s
            raise PlanError(
                f"no request begins between {load.warm_up_s:g} and {end_s:g} s: percentiles of nothing",
                "a longer duration, or a shorter warm-up",
            )
        chance = np.random.default_rng(load.seed + 3)
        scattered = chance.choice(system.scatter, int(counted.sum()))
        self.ttft_s = ((first - arrived)[counted] + outside_s) * scattered
        self.queue_s = (started - arrived)[counted]
        self.latency_s = (ended - arrived)[counted] + outside_s
        several = counted & (osl > 1)
        self.tpot_s = (ended - first)[several] / (osl[several] - 1)
        # while the load lasts: what ends after the last arrival is the tail of an emptying server
        begin, end = float(arrived[counted].min()), float(np.nanmax(arrived))
        if load.end_s is not None:
            begin, end = load.warm_up_s, load.end_s
        if end <= begin or not np.any((ended >= begin) & (ended <= end)):
            begin, end = float(np.nanmin(arrived)), float(np.nanmax(ended))
        inside = (ended >= begin) & (ended <= end)
        read = (first >= begin) & (first <= end)
        made = _made_by(end, first, ended, osl) - _made_by(begin, first, ended, osl)
        self.requests_per_s = float(inside.sum()) / (end - begin)
        self.tokens_out_per_s = float(made[sent].sum()) / (end - begin)
        self.tokens_in_per_s = float(isl[read].sum()) / (end - begin)


def _made_by(
    at_s: float, first_s: NDArray[np.float64], ended_s: NDArray[np.float64], osl: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Tokens of each request until a time: from the first to the last they come evenly."""
    share = np.clip((at_s - first_s) / np.maximum(ended_s - first_s, 1e-9), 0.0, 1.0)
    return np.where(at_s < first_s, 0.0, 1.0 + share * (osl - 1))


def _columns(trace: Trace) -> list[NDArray[np.float64]]:
    times = trace.times
    return [np.asarray(column) for column in (times.arrived, times.started, times.first, times.ended)]


def _wall(own_s: NDArray[np.float64], clock: SharedClock | None) -> NDArray[np.float64]:
    return own_s if clock is None else clock.to_wall(own_s)


def _clock(load: Offered) -> SharedClock | None:
    if not load.pictures_per_s:
        return None
    horizon_s = 3600.0
    if isinstance(load.traffic.load, OpenLoop):
        horizon_s = max(60.0, 2 * load.traffic.load.arrivals_s[-1])
    return shared_clock(
        pictures_per_s=load.pictures_per_s,
        picture_s=load.picture_s,
        horizon_s=horizon_s,
        generator=np.random.default_rng(load.seed + 2),
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
