"""A load of ``trtbuild bench`` as the latency model simulates it: the requests that the run will send."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

from trtbuild.errors import MeasureError
from trtbuild.measure.load.arrivals import arrivals, classes
from trtbuild.measure.load.spec import Closed, Flow, LoadSpec, TextTraffic, Traffic
from trtbuild.measure.load.trace import TraceRow
from trtbuild.plan.latency.load import ClosedLoop, OpenLoop, Requests
from trtbuild.plan.latency.load import Traffic as Simulated
from trtbuild.plan.latency.mix import Level, Offered

_MOST_PER_S = 1000  # requests of a closed loop


def offered_by(load: LoadSpec) -> tuple[Offered, Level]:
    """The load's requests with their lengths, and how it is called in a table.

    Raises:
        MeasureError: several flows, or requests whose lengths only a tokenizer could tell.
    """
    if len(load.flows) != 1:
        raise MeasureError(
            f"the load has {len(load.flows)} flows: one model is simulated at a time",
            "a load of its flow alone; of pictures beside it: --pictures and --picture-ms",
        )
    flow = load.flows[0]
    if isinstance(flow.shape, Closed):
        # a closed loop sends as many as are answered in its time: more are drawn than can be
        most = load.requests or int(_MOST_PER_S * load.duration_s)
        drawn = [(one, None) for one in islice(classes(flow, load.seed), most)]
        users = ClosedLoop(flow.shape.users, flow.shape.think_s, load.duration_s)
        traffic = Simulated(_requests(flow, drawn, load.seed), users)
        return _in_window(traffic, load), Level(users=flow.shape.users)
    coming = list(islice(arrivals(flow, load), load.requests))
    if all(one.at_s < load.warmup_s for one in coming):
        raise MeasureError(
            f"of the load's {len(coming)} requests none comes after its warm-up of {load.warmup_s:g} s",
            "a longer duration_s, or a shorter warmup_s",
        )
    asked = _requests(flow, [(one.traffic, one.row) for one in coming], load.seed)
    traffic = Simulated(asked, OpenLoop([one.at_s for one in coming]))
    return _in_window(traffic, load), Level(rate=len(coming) / load.duration_s)


def _in_window(traffic: Simulated, load: LoadSpec) -> Offered:
    return Offered(traffic, warm_up_s=load.warmup_s, end_s=load.duration_s, seed=load.seed)


def _requests(flow: Flow, drawn: Sequence[tuple[Traffic, TraceRow | None]], seed: int) -> Requests:
    rng = random.Random(f"{seed}/prefixes")
    prefixes: dict[tuple[str, int], int] = {}
    isl, osl, numbers, prefix_tokens = [], [], [], []
    for traffic, row in drawn:
        if not isinstance(traffic, TextTraffic) or (row is not None and row.prompt is not None):
            raise MeasureError(
                f"how many tokens the requests of {traffic.name} have is not known before they are sent",
                "lengths in tokens: 512/128, or a trace with input_tokens and output_tokens",
            )
        isl.append(row.input_tokens if row and row.input_tokens else traffic.input_tokens)
        osl.append(row.output_tokens if row and row.output_tokens else traffic.output_tokens)
        group = (traffic.name, rng.randrange(traffic.prefix_groups))
        numbers.append(prefixes.setdefault(group, len(prefixes)))
        prefix_tokens.append(min(isl[-1], round(traffic.input_tokens * traffic.prefix_share)))
    if not any(prefix_tokens):
        return Requests(isl, osl)
    return Requests(isl, osl, prefixes=numbers, prefix_tokens=prefix_tokens)
