"""The requests of a flow in their order: of which class each is and, in an open loop, when it comes.

Load and seed decide them alone, so that a prediction can be made of the very requests that a run will send.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from trtbuild.measure.load.shapes import arrival_times
from trtbuild.measure.load.spec import Flow, LoadSpec, Replay, Traffic
from trtbuild.measure.load.trace import TraceRow, read_trace


class Arrival(NamedTuple):
    """A request of an open loop: seconds after the beginning, its class, and its line of the trace."""

    at_s: float
    traffic: Traffic
    row: TraceRow | None


def classes(flow: Flow, seed: int) -> Iterator[Traffic]:
    """Traffic classes by weight, without an end."""
    rng = random.Random(f"{seed}/{flow.model}")
    weights = [item.weight for item in flow.traffic]
    while True:
        yield rng.choices(flow.traffic, weights)[0]


def arrivals(flow: Flow, load: LoadSpec) -> Iterator[Arrival]:
    """The requests of a flow that no user waits for, in time; none after the load's end."""
    drawn = classes(flow, load.seed)
    if isinstance(flow.shape, Replay):
        for row in read_trace(flow.shape.path):
            at_s = row.at_s / flow.shape.speed
            if at_s < load.duration_s:
                yield Arrival(at_s, next(drawn), row)
        return
    rng = random.Random(f"{load.seed}/{flow.model}/times")
    for at_s in arrival_times(flow.shape, duration_s=load.duration_s, rng=rng):
        yield Arrival(at_s, next(drawn), None)
