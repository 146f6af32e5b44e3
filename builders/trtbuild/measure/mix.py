"""Tenants of one GPU: each alone, then all together. The isolation figure is the ratio of their tails; and
what is left of the text model's tokens beside the pictures."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from trtbuild.measure.bench import bench
from trtbuild.measure.load.generator import Progress
from trtbuild.measure.load.spec import Flow, LoadSpec
from trtbuild.measure.metrics import LATENCIES, observed, rate_of
from trtbuild.measure.records.record import Record
from trtbuild.measure.records.store import Store
from trtbuild.measure.server import MeasuredServer
from trtbuild.measure.stats import Estimate, least_count, percentile

_FIGURES = {"text": ("ttft_s", "tpot_s"), "vision": ("latency_s",)}
_TAILS = (0.99, 0.95, 0.5)


@dataclass(frozen=True)
class Tenant:
    """One figure of one model, alone and under the other's load: P99, or P95 or P50 of too few."""

    model: str
    metric: str
    alone: Estimate
    together: Estimate
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """together / alone: 1 is perfect isolation; None where one is only known to be larger."""
        if not self.alone.value or self.together.value is None:
            return None
        if self.alone.at_least or self.together.at_least:
            return None
        return self.together.value / self.alone.value


@dataclass(frozen=True)
class Tokens:
    """Tokens a second of one text model, alone and beside pictures.

    Attributes:
        pictures_per_s: that were answered beside it.
        cpu_s_per_picture: of all the server's processes while pictures came alone; None where the server runs
            elsewhere or has a GPU.
        cores: of this machine.
    """

    model: str
    alone_per_s: float
    together_per_s: float
    pictures_per_s: float
    cpu_s_per_picture: float | None
    cores: int

    @property
    def ratio(self) -> float | None:
        """together / alone."""
        return self.together_per_s / self.alone_per_s if self.alone_per_s else None

    @property
    def left(self) -> float | None:
        """What the pictures leave of the machine: 1 − pictures/s × CPU seconds a picture / cores."""
        if self.cpu_s_per_picture is None:
            return None
        return max(0.0, 1 - self.pictures_per_s * self.cpu_s_per_picture / self.cores)

    @property
    def share(self) -> float | None:
        """ratio / left: 1 where the pictures cost the text model just their own work."""
        return self.ratio / self.left if self.ratio is not None and self.left else None


@dataclass(frozen=True)
class Mix:
    run_ids: tuple[str, ...]
    tenants: tuple[Tenant, ...]
    tokens: tuple[Tokens, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The figures as data, derived ones included."""
        return {
            "runs": self.run_ids,
            "tenants": [{**asdict(one), "ratio": one.ratio} for one in self.tenants],
            "tokens": [
                {**asdict(one), "ratio": one.ratio, "left": one.left, "share": one.share}
                for one in self.tokens
            ],
        }


def run_mix(
    server: MeasuredServer,
    load: LoadSpec,
    store: Store,
    *,
    label: str = "",
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Mix:
    """Runs each flow of the load alone, then the whole load; all are recorded as one series."""
    series = secrets.token_hex(4)

    def run(flows: tuple[Flow, ...]) -> Record:
        part = load.model_copy(update={"flows": flows})
        return bench(server, part, store, label=label, kind="mix", series=series, on_progress=on_progress)

    alone = [run((flow,)) for flow in load.flows]
    together = run(load.flows)
    tenants = [
        tenant
        for flow, single in zip(load.flows, alone, strict=True)
        for tenant in _tenants(flow, single, together)
    ]
    singles = dict(zip((flow.model for flow in load.flows), alone, strict=True))
    kinds = {flow.model: flow.traffic[0].kind for flow in load.flows}
    pictures = [model for model, kind in kinds.items() if kind == "vision"]
    tokens = [
        _left(model, singles[model], together, [(name, singles[name]) for name in pictures])
        for model in kinds
        if model not in pictures and pictures
    ]
    return Mix((*(one.run_id for one in alone), together.run_id), tuple(tenants), tuple(tokens))


def _left(model: str, alone: Record, together: Record, pictures: list[tuple[str, Record]]) -> Tokens:
    cpu_s = [_cpu_s_per_picture(name, record) for name, record in pictures]
    known = [one for one in cpu_s if one is not None]
    rates = [rate_of(together, name, "requests_per_s") for name, _ in pictures]
    each = None
    if len(known) == len(rates) and sum(rates) > 0:
        each = sum(rate * one for rate, one in zip(rates, known, strict=True)) / sum(rates)
    return Tokens(
        model=model,
        alone_per_s=rate_of(alone, model, "tokens_out_per_s"),
        together_per_s=rate_of(together, model, "tokens_out_per_s"),
        pictures_per_s=sum(rates),
        cpu_s_per_picture=each,
        cores=int(together.machine["cores"]),
    )


def _cpu_s_per_picture(model: str, alone: Record) -> float | None:
    rate = rate_of(alone, model, "requests_per_s")
    begin_s, end_s = alone.window_s
    used: dict[float, float] = {}
    for at_s, _, series, value in alone.timeline:
        if series == "cpu_cores" and begin_s <= at_s < end_s:
            used[at_s] = used.get(at_s, 0.0) + value
    if not used or not rate or alone.machine.get("gpus"):
        return None
    return sum(used.values()) / len(used) / rate


def _tenants(flow: Flow, alone: Record, together: Record) -> list[Tenant]:
    kind = "vision" if flow.traffic[0].kind == "vision" else "text"
    tenants = []
    for metric in LATENCIES:
        if metric.name not in _FIGURES[kind]:
            continue
        values = [
            observed(metric, [one for one in run.measured() if one.model == flow.model])
            for run in (alone, together)
        ]
        fewest = min(map(len, values))
        tail = next((q for q in _TAILS if fewest >= least_count(q)), None)
        if tail is None:
            nothing = Estimate(None)
            tenants.append(
                Tenant(flow.model, metric.title, nothing, nothing, f"{fewest} requests are too few")
            )
            continue
        title = f"{metric.title} P{100 * tail:g}"
        tenants.append(Tenant(flow.model, title, percentile(values[0], tail), percentile(values[1], tail)))
    return tenants
