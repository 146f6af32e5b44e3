"""Published figures as simulations: what a record says was run, and what the model predicts for it.

The schedule of a load that is not timed (all at once, a fixed batch, users without a pause) does not depend
on how long steps take. So a case is simulated once, and its runs are timed anew for other constants; where
arrivals are timed, that is right near the constants of the simulation, which the fit repeats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trtbuild.catalog.formats import Format, find_format
from trtbuild.catalog.gpus import Gpu, find_gpu
from trtbuild.catalog.latency import LatencyConstants
from trtbuild.catalog.models import find_model
from trtbuild.errors import CatalogError
from trtbuild.plan.architecture import Architecture, from_record
from trtbuild.plan.constants import ENGINE_PROCESS_BYTES
from trtbuild.plan.latency.cost import StepCost
from trtbuild.plan.latency.fleet import simulate
from trtbuild.plan.latency.load import (
    ClosedLoop,
    Lengths,
    Requests,
    Traffic,
    all_at_once,
    make_requests,
    poisson,
)
from trtbuild.plan.latency.rates import device_rates
from trtbuild.plan.latency.records import SpeedRecord
from trtbuild.plan.latency.replica import Limits, Policy
from trtbuild.plan.latency.trace import Trace
from trtbuild.plan.latency.work import ModelWork, model_work
from trtbuild.plan.weights import weights

# Where a record does not say: trtllm-bench's and the engine builder's defaults.
_MAX_BATCH, _MAX_NUM_TOKENS, _KV_FRACTION = 2048, 8192, 0.9
_CLOSED_LOOP_ROUNDS = 10  # the usual request count of a closed loop: ten times its users
_SEED = 1
_FORMATS = {
    "int4-awq": "awq", "int4-gptq": "gptq", "int4-w4a16": "gptq", "int4": "int4", "int8-w8a8": "int8-sq",
    "int8-w8a16": "int8", "int8-smoothquant": "int8-sq", "int8-gptq": "int8", "int4-q4_k_m": "gguf-q4_k",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A record to be simulated. Of a pipeline it is one of ``stages``, with its share of the requests."""

    record: SpeedRecord
    gpu: Gpu
    fmt: Format
    work: ModelWork
    traffic: Traffic
    limits: Limits
    stages: int

    def cost(self, constants: LatencyConstants) -> StepCost:
        """Step times with some constants."""
        rates = device_rates(
            gpu=self.gpu,
            fmt=self.fmt,
            tp=self.work.tp,
            flow=self.record.flow or "pytorch",
            constants=constants,
        )
        return StepCost(self.work, rates)

    def simulate(self, constants: LatencyConstants) -> Trace:
        """The runs of this load, with their log."""
        return simulate(self.traffic, cost=self.cost(constants), limits=self.limits, log=True)


def make_case(record: SpeedRecord) -> Case | str:
    """The simulation that a record describes, or why there is none."""
    try:
        gpu = find_gpu(record.gpu).gpu
        fmt = find_format(_FORMATS.get(record.weights, record.weights))
    except CatalogError as error:
        return error.message
    try:
        architecture = from_record(find_model(record.model))
    except CatalogError:
        return f"no shape of {record.model} is in the catalogue"
    stages = record.pp or 1
    kv_bits = (
        8 if record.kv in ("fp8", "int8") or (not record.kv and record.weights in ("fp8", "nvfp4")) else 16
    )
    work = _stage(model_work(architecture=architecture, fmt=fmt, kv_bits=kv_bits, tp=record.tp), stages)
    max_num_tokens = record.max_num_tokens or _MAX_NUM_TOKENS
    kv_tokens = _kv_tokens(record, gpu, fmt, architecture, work, stages)
    requests = _requests(record, stages)
    longest = record.isl + record.osl + 64
    if record.load in ("static_batch", "single"):
        level = int(record.level or 1)
        kv_tokens, max_num_tokens = level * longest * 2, max(level * record.isl, 64 + level)
    if kv_tokens < longest:
        return f"{record.weights} of {record.model} leaves no room for one request on {record.gpu}"
    limits = Limits(
        max_batch_size=record.max_batch or _MAX_BATCH,
        max_num_tokens=max(max_num_tokens, (record.max_batch or _MAX_BATCH) + 64),
        kv_tokens=kv_tokens,
        policy=Policy(record.policy or Policy.NO_EVICT),
    )
    return Case(record, gpu, fmt, work, _traffic(record, requests), limits, stages)


def _stage(work: ModelWork, stages: int) -> ModelWork:
    """One of ``stages`` equal parts of the layers; the lm_head is in each: the last stage sets the pace."""
    return replace(
        work,
        layers=-(-work.layers // stages),
        dense_ops_per_token=work.dense_ops_per_token / stages,
        dense_bytes=work.dense_bytes / stages,
        kv_bytes_per_token=work.kv_bytes_per_token / stages,
        window_kv_bytes_per_token=work.window_kv_bytes_per_token / stages,
        attention_ops_per_pair=work.attention_ops_per_pair / stages,
        window_attention_ops_per_pair=work.window_attention_ops_per_pair / stages,
        expert_ops_per_token=work.expert_ops_per_token / stages,
        expert_bytes=work.expert_bytes / stages,
    )


def _kv_tokens(
    record: SpeedRecord, gpu: Gpu, fmt: Format, architecture: Architecture, work: ModelWork, stages: int
) -> int:
    """The pool of one of the pipeline's micro-batches: a fraction of what weights and process leave free."""
    loaded = weights(architecture=architecture, fmt=fmt, tp=record.tp).total_bytes // stages
    free = gpu.memory_bytes - ENGINE_PROCESS_BYTES - loaded
    per_token = work.kv_bytes_per_token + work.window_kv_bytes_per_token
    return int(max(0, free) * (record.kv_fraction or _KV_FRACTION) / per_token / stages)


def _requests(record: SpeedRecord, stages: int) -> Requests:
    count = record.requests or 1
    if record.load in ("static_batch", "single"):
        count = int(record.level or 1)
    elif record.load == "concurrency":
        count = _CLOSED_LOOP_ROUNDS * max(4, int(record.level or 1))
    return make_requests(
        count=-(-count // stages),
        isl=Lengths(record.isl),
        osl=Lengths(record.osl),
        generator=np.random.default_rng(_SEED),
    )


def _traffic(record: SpeedRecord, requests: Requests) -> Traffic:
    if record.load == "concurrency":
        return Traffic(requests, ClosedLoop(int(record.level or 1)))
    if record.load == "request_rate":
        return poisson(requests, rate=record.level or 1.0, generator=np.random.default_rng(_SEED))
    return all_at_once(requests)


class Timing:
    """A simulated case that can be timed with other constants."""

    def __init__(self, case: Case, constants: LatencyConstants) -> None:
        self.case = case
        trace = case.simulate(constants)
        assert trace.log is not None
        log, times = trace.log, trace.times
        self._table = log.table()
        begun = np.array(log.begun_s)
        spans = self._spans(case.cost(constants))
        self._idle = np.maximum(0.0, begun - np.concatenate(([begun[0]], (begun + spans)[:-1])))
        self._arrived = np.array(log.arrived)
        self._first, self._ended = np.array(log.first) - 1, np.array(log.ended) - 1
        into = np.array(times.arrived) - begun[self._arrived]
        self._into = np.clip(into / spans[self._arrived], 0.0, 1.0)  # how far into its run an arrival came
        self._whole = case.record.metric in _WHOLE_RUN_METRICS
        if self._whole:
            self._table = _alike_together(self._table)

    def predict(self, constants: LatencyConstants) -> float:
        """The record's metric, in its unit."""
        record, stages = self.case.record, self.case.stages
        requests = self.case.traffic.requests
        cost = self.case.cost(constants)
        spans = self._spans(cost)
        if self._whole:
            total_s = float(spans.sum() + self._idle.sum())
            return self._throughput(total_s + (cost.rates.request_s if record.load == "single" else 0.0))
        ends = np.cumsum(spans + self._idle)
        begun = ends - spans
        arrived = begun[self._arrived] + self._into * spans[self._arrived]
        first, ended = ends[self._first], ends[self._ended]
        if record.kind == "ttft":
            return float(np.mean(first - arrived)) * stages + cost.rates.request_s
        if record.kind == "tpot":
            return float(np.sum(ended - first) / np.sum(np.array(requests.osl) - 1)) * stages
        if record.kind == "e2e":
            return float(np.mean(ended - arrived)) * stages + cost.rates.request_s
        if record.metric == "prefill_throughput":
            return sum(requests.isl) / float(first.max())
        return (sum(requests.osl) - len(requests)) / float((ended - first).max())

    def _spans(self, cost: StepCost) -> NDArray[np.float64]:
        tokens, rows, kv, window_kv, pairs, window_pairs, steps = self._table.T
        one = (
            cost.base_s(tokens, rows)
            + cost.kv_token_s * kv
            + cost.window_kv_token_s * window_kv
            + cost.pair_s * pairs
            + cost.window_pair_s * window_pairs
        )
        return np.asarray(one * steps)

    def _throughput(self, total_s: float) -> float:
        record, requests = self.case.record, self.case.traffic.requests
        if record.metric == "request_throughput":
            return len(requests) / total_s
        tokens = sum(requests.osl) + (sum(requests.isl) if record.metric == "total_throughput" else 0)
        return tokens / total_s / (record.n_gpus if record.metric.endswith("_per_gpu") else 1)


_WHOLE_RUN_METRICS = (
    "output_throughput", "output_throughput_per_gpu", "total_throughput", "request_throughput"
)  # fmt: skip


def _alike_together(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Runs of as many tokens and rows as one, with the mean of what their time is linear in."""
    steps = table[:, 6]
    alike, place = np.unique(table[:, :2], axis=0, return_inverse=True)
    place = place.reshape(-1)
    count = np.bincount(place, weights=steps)
    means = [np.bincount(place, weights=table[:, column] * steps) / count for column in range(2, 6)]
    return np.column_stack([alike, *means, count])
