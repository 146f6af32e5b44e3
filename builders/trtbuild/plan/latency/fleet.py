"""Replicas behind least-connections, driven by a queue of events: arrivals, and ends of runs."""

from __future__ import annotations

import math
from heapq import heappop, heappush

from trtbuild.errors import PlanError
from trtbuild.plan.latency.cost import StepCost
from trtbuild.plan.latency.load import ClosedLoop, OpenLoop, Requests, Traffic
from trtbuild.plan.latency.replica import Limits, Policy, Replica
from trtbuild.plan.latency.trace import Trace

# Events of one moment, in the order in which they are taken: who arrives now is in the step that begins now.
_ARRIVAL, _END, _BEGIN = 0, 1, 2
_Event = tuple[float, int, int, int]  # time, kind, request or replica, version of the replica's plan


def simulate(
    traffic: Traffic,
    *,
    cost: StepCost,
    limits: Limits,
    replicas: int = 1,
    log: bool = False,
    max_run: int = 1 << 60,
) -> Trace:
    """Serves every request of ``traffic`` and returns when each got its tokens.

    Args:
        traffic: the requests and when they come.
        cost: step times of one replica.
        limits: the engine's limits; the same for each replica.
        replicas: engines; a request goes to the one with the fewest open requests.
        log: keep every run, for one replica.
        max_run: most steps taken at once; the result does not depend on it.

    Raises:
        PlanError: a request that can never run within the limits.
    """
    refuse_what_never_runs(traffic.requests, limits)
    trace = Trace(len(traffic.requests), log=log and replicas == 1)
    return _Fleet(traffic, cost, limits, replicas, trace, max_run).run()


def refuse_what_never_runs(requests: Requests, limits: Limits) -> None:
    """Checks every length against the pool, and against the step where prompts are not chunked.

    Raises:
        PlanError: the first request that is too long, and what would take it.
    """
    if not len(requests):
        raise PlanError("a load of no requests cannot be simulated")
    answers = requests.limits or requests.osl
    if limits.policy is Policy.MAX_UTILIZATION:
        answers = requests.osl
    longest = max(isl + osl for isl, osl in zip(requests.isl, answers, strict=True))
    if longest + 1 > limits.kv_tokens // limits.tokens_per_block * limits.tokens_per_block:
        raise PlanError(
            f"a request of {longest} tokens never runs: the KV pool holds {limits.kv_tokens}",
            "a larger pool, shorter requests, or an 8-bit KV cache",
        )
    if not limits.chunked_context and max(requests.isl) > limits.max_num_tokens:
        raise PlanError(
            f"a prompt of {max(requests.isl)} tokens never runs: a step takes {limits.max_num_tokens}, "
            "and prompts are not chunked",
            "chunked context, or max_num_tokens of the longest prompt",
        )
    if limits.chunked_context and limits.max_num_tokens < limits.tokens_per_block + limits.max_batch_size:
        raise PlanError(
            f"max_num_tokens {limits.max_num_tokens} leaves no room for a block of "
            f"{limits.tokens_per_block} prompt tokens beside {limits.max_batch_size} sequences",
            f"max_num_tokens of at least {limits.tokens_per_block + limits.max_batch_size}",
        )


class _Fleet:
    def __init__(
        self, traffic: Traffic, cost: StepCost, limits: Limits, replicas: int, trace: Trace, max_run: int
    ) -> None:
        requests = traffic.requests
        self._load, self._trace, self._count = traffic.load, trace, len(requests)
        self._replicas = [
            Replica(cost=cost, limits=limits, requests=requests, trace=trace, max_run=max_run)
            for _ in range(replicas)
        ]
        self._open = [0] * replicas
        self._versions = [0] * replicas
        self._events: list[_Event] = []
        self._sent = 0

    def run(self) -> Trace:
        events, load = self._events, self._load
        if isinstance(load, ClosedLoop):
            for _ in range(min(load.users, self._count)):
                self._send(0.0)
        else:
            self._send_next(load)
        while events:
            now_s, kind, number, version = heappop(events)
            if kind == _ARRIVAL:
                self._arrive(number, now_s)
                if isinstance(load, OpenLoop):
                    self._send_next(load)
            elif version == self._versions[number]:
                if kind == _END:
                    self._end(number, now_s)
                else:
                    self._begin(number, now_s)
        return self._trace

    def _send(self, at_s: float) -> None:
        if self._sent < self._count:
            heappush(self._events, (at_s, _ARRIVAL, self._sent, 0))
            self._sent += 1

    def _send_next(self, load: OpenLoop) -> None:
        if self._sent < self._count:
            self._send(load.arrivals_s[self._sent])

    def _arrive(self, request: int, now_s: float) -> None:
        self._trace.times.arrived[request] = now_s
        number = self._open.index(min(self._open)) if len(self._open) > 1 else 0
        replica = self._replicas[number]
        replica.arrive(request)
        self._open[number] += 1
        if replica.busy:
            end_s = replica.interrupt(now_s)
            if end_s is not None:
                self._plan(number, _END, end_s)
        else:
            replica.busy = True
            self._plan(number, _BEGIN, now_s)

    def _begin(self, number: int, now_s: float) -> None:
        end_s = self._replicas[number].begin(now_s)
        if end_s != math.inf:
            self._plan(number, _END, end_s)

    def _end(self, number: int, now_s: float) -> None:
        ended = self._replicas[number].end(now_s)
        self._open[number] -= len(ended)
        if ended and isinstance(self._load, ClosedLoop):
            next_s = now_s + self._load.think_s
            for _ in ended if next_s < self._load.until_s else ():
                self._send(next_s)
            self._plan(number, _BEGIN, now_s)
        else:
            self._begin(number, now_s)

    def _plan(self, number: int, kind: int, at_s: float) -> None:
        self._versions[number] += 1
        heappush(self._events, (at_s, kind, number, self._versions[number]))
