"""Figures against what is physically possible: a measurement above a roof is an error of the measurement."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trtbuild.catalog.formats import find_format
from trtbuild.catalog.gpus import Gpu, find_gpu
from trtbuild.errors import CatalogError
from trtbuild.measure.records.record import Record
from trtbuild.plan.model import LlmPlan, Plan
from trtbuild.spec import Target

_TICK_S = 1e-4  # what rounding of stored times may do
_HANDED_OVER_S = 2.0  # the front gives its counters to Triton once a second, later on a busy machine
_LITTLE = 1.02  # mean requests in flight over the users there are


def impossible(record: Record) -> list[str]:
    """Sentences about figures that cannot be right; none is good."""
    return [*_times(record), *_lengths(record), *_users(record), *_counts(record), *_device(record)]


def _times(record: Record) -> Iterator[str]:
    wrong = 0
    for one in record.requests:
        marks = [one.sent_s, one.first_s, *one.arrival_s, one.end_s]
        known = [mark for mark in marks if mark is not None]
        early = one.sent_s is not None and one.sent_s < one.intended_s - _TICK_S
        wrong += early or any(after < before - _TICK_S for before, after in pairwise(known))
    if wrong:
        yield f"{wrong} requests have times that run backwards"


def _lengths(record: Record) -> Iterator[str]:
    long = sum(
        one.output_tokens > one.max_tokens
        for one in record.requests
        if one.output_tokens is not None and one.max_tokens is not None
    )
    if long:
        yield f"{long} answers have more tokens than were allowed"


def _users(record: Record) -> Iterator[str]:
    """Little's law: requests in flight = the time of all requests in the window / its length."""
    shapes = [flow["shape"] for flow in record.load.get("flows", ())]
    begin_s, end_s = record.window_s
    if not shapes or end_s <= begin_s or any(shape["kind"] != "closed" for shape in shapes):
        return
    users = sum(shape["users"] for shape in shapes)
    busy_s = sum(
        max(0.0, min(one.end_s, end_s) - max(one.intended_s, begin_s))
        for one in record.requests
        if one.end_s is not None
    )
    mean = busy_s / (end_s - begin_s)
    if mean > _LITTLE * users:
        yield f"{mean:.1f} requests were in flight in the mean, and there are {users} users"


def _counts(record: Record) -> Iterator[str]:
    """Tokens that came here against those that the server says it sent."""
    told: dict[str, list[tuple[float, float]]] = {}
    for t_s, model, series, value in record.timeline:
        if series == "tokens_out":
            told.setdefault(model, []).append((t_s, value))
    for model, points in told.items():
        (begin_s, first), (end_s, last) = points[0], points[-1]
        came = sum(
            count
            for one in record.requests
            if one.model == model
            for at_s, count in zip(one.arrival_s, one.arrival_tokens, strict=True)
            if begin_s < at_s <= end_s - _HANDED_OVER_S
        )
        if came > 1.05 * (last - first):
            yield f"{came} tokens of {model} came, and the server counts {last - first:.0f} meanwhile"


def _device(record: Record) -> Iterator[str]:
    data = record.deployment.get("plan")
    if not data:
        return
    plan = Plan.model_validate(data)
    if plan.target is Target.LOCAL:
        return  # a CPU's rates are in no table
    try:
        gpu = find_gpu(plan.gpu.name).gpu
    except CatalogError:
        return
    for llm in plan.llms:
        group = record.metrics.get("all", {})
        if len(plan.llms) == 1:
            yield from _bandwidth(llm, gpu, group)
            yield from _compute(llm, gpu, group, record)


def _bandwidth(llm: LlmPlan, gpu: Gpu, group: dict[str, Any]) -> Iterator[str]:
    """A decode step reads every weight once: TPOT ≥ weights / bandwidth, tokens/s ≤ batch / that."""
    if gpu.mem_bw_gbs is None:
        return
    step_s = llm.weights_bytes / (gpu.mem_bw_gbs * 1e9)
    tpot_s = ((group.get("tpot_s") or {}).get("p50") or {}).get("value")
    if tpot_s is not None and tpot_s < step_s:
        yield (
            f"TPOT P50 is {1e3 * tpot_s:.2f} ms, and reading {llm.name}'s weights once takes {gpu.name} "
            f"{1e3 * step_s:.2f} ms: tokens come in packets, or the model is another one"
        )
    rate = (group.get("tokens_out_per_s") or {}).get("value")
    most = llm.instances * llm.max_batch_size / step_s
    if rate is not None and rate > most:
        yield f"{rate:.0f} output tokens a second are more than {gpu.name}'s bandwidth allows: {most:.0f}"


def _compute(llm: LlmPlan, gpu: Gpu, group: dict[str, Any], record: Record) -> Iterator[str]:
    """Prefill takes 2 operations a parameter and token: tokens in ≤ peak / (2 · parameters), if new."""
    generated = all(
        traffic["kind"] == "text" and not traffic.get("prefix_share")
        for flow in record.load.get("flows", ())
        for traffic in flow["traffic"]
    )
    rate = (group.get("tokens_in_per_s") or {}).get("value")
    try:
        params = llm.weights_bytes * 8 / find_format(llm.quant).bits
    except CatalogError:
        return
    peak = max(filter(None, (gpu.fp16_tflops, gpu.fp8_tflops, gpu.int8_tops, gpu.fp4_tflops)), default=None)
    if not generated or rate is None or peak is None:
        return
    most = llm.instances * llm.tp * peak * 1e12 / (2 * params)
    if rate > most:
        yield f"{rate:.0f} prompt tokens a second are more than the {most:.0f} of {gpu.name}'s arithmetic"
