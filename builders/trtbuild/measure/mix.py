"""Tenants of one GPU: each alone, then all together; the isolation figure is the ratio of their tails."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from trtbuild.measure.bench import bench
from trtbuild.measure.load.generator import Progress
from trtbuild.measure.load.spec import Flow, LoadSpec
from trtbuild.measure.metrics import LATENCIES, values_of
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
        """together / alone: 1 is perfect isolation."""
        if not self.alone.value or self.together.value is None:
            return None
        return self.together.value / self.alone.value


@dataclass(frozen=True)
class Mix:
    run_ids: tuple[str, ...]
    tenants: tuple[Tenant, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": self.run_ids,
            "tenants": [{**asdict(one), "ratio": one.ratio} for one in self.tenants],
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
    return Mix((*(one.run_id for one in alone), together.run_id), tuple(tenants))


def _tenants(flow: Flow, alone: Record, together: Record) -> list[Tenant]:
    kind = "vision" if flow.traffic[0].kind == "vision" else "text"
    tenants = []
    for metric in LATENCIES:
        if metric.name not in _FIGURES[kind]:
            continue
        values = [
            values_of(
                metric, [one for one in run.measured() if one.model == flow.model and one.outcome == "ok"]
            )
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
