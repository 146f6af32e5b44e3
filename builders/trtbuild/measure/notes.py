"""What a reader must know before believing a run's figures, in sentences."""

from __future__ import annotations

import numpy as np

from trtbuild.measure import roofs
from trtbuild.measure.load.calls import Caller, TextCaller
from trtbuild.measure.load.sample import RequestSample
from trtbuild.measure.load.spec import LoadSpec, Replay
from trtbuild.measure.load.trace import read_trace
from trtbuild.measure.records.record import Record
from trtbuild.measure.stats import share

LATE_S = 0.005  # send-time error above which a request was sent late
MOST_LATE = 0.01  # share of requests sent late above which, surely, a run says that its generator was late
JUMP_S = 0.2  # of the wall clock
_LENGTH_TOLERANCE = 0.1


def caller_notes(callers: dict[str, Caller]) -> list[str]:
    notes = []
    for model, caller in callers.items():
        if isinstance(caller, TextCaller) and not caller.sends_ids:
            notes.append(f"{model} sends no token ids: each response counts as one token")
        if isinstance(caller, TextCaller) and not caller.keeps_length:
            notes.append(f"{model} has no min_tokens: answers may be shorter than asked for")
    return notes


def trace_notes(load: LoadSpec) -> list[str]:
    """How much of each trace comes after the load's end."""
    notes = []
    for flow in load.flows:
        if isinstance(flow.shape, Replay):
            rows = read_trace(flow.shape.path)
            sent = sum(row.at_s / flow.shape.speed < load.duration_s for row in rows)
            if sent < len(rows):
                notes.append(
                    f"{flow.shape.path}: {len(rows) - sent} of its {len(rows)} requests come after the "
                    f"{load.duration_s:g} s of the run and are not sent; the last at "
                    f"{rows[-1].at_s / flow.shape.speed:g} s"
                )
    return notes


def judged(record: Record) -> list[str]:
    """What a reader must know before believing the figures."""
    return [
        *_about_generator(record),
        *_about_requests(record),
        *(f"impossible: {text}" for text in roofs.impossible(record)),
    ]


def _about_generator(record: Record) -> list[str]:
    notes = []
    own = record.generator
    late = share(round(own.get("sent_late", 0)), round(own.get("sent", 0)))
    if (late.low or 0.0) > MOST_LATE:  # one of many may be
        notes.append(
            f"the generator was late: {own['sent_late']:.0f} of {own['sent']:.0f} requests were sent more "
            f"than {1e3 * LATE_S:g} ms after their time, at most {1e3 * own['send_error_max_s']:.1f} ms "
            f"(its process used {own['cpu_share']:.0%} of a core)"
        )
    jumps = [value for _, _, series, value in record.timeline if series == "wall_jump_s"]
    jump_s = max(jumps, key=abs, default=0.0)
    if abs(jump_s) > JUMP_S:
        notes.append(
            f"the wall clock was moved by {jump_s:+.1f} s meanwhile; times are of the monotonic clock"
        )
    return notes


def _about_requests(record: Record) -> list[str]:
    measured = record.measured()
    notes = []
    if not measured:
        return [_why_nothing(record)]
    unfinished = sum(one.outcome == "unfinished" for one in measured)
    if unfinished:
        notes.append(f"{unfinished} of {len(measured)} requests did not finish")
    silent = [one.waited_s or 0.0 for one in measured if one.first_s is None and one.outcome != "ok"]
    if silent:
        notes.append(
            f"{len(silent)} of {len(measured)} requests got nothing in the {_span(silent)} s that "
            "they were waited for: they count as longer than that, and ≥ marks a figure that falls among them"
        )
    failed = [one for one in measured if one.outcome not in ("ok", "unfinished")]
    if failed:
        errors = [one.error for one in failed]
        commonest = max(set(errors), key=errors.count)
        notes.append(
            f"{len(failed)} of {len(measured)} requests failed, most with: {commonest or failed[0].outcome}"
        )
    whys = {data.get("why", "") for data in record.metrics.get("all", {}).values() if isinstance(data, dict)}
    notes += [why for why in whys if why.startswith("window too short")]
    return [*notes, *_about_lengths(record, measured)]


def _why_nothing(record: Record) -> str:
    early, warmup_s = record.requests, record.load["warmup_s"]
    if not early:
        return "no request was measured: none was sent"
    longest_s = max((one.latency_s or 0.0 for one in early), default=0.0)
    if record.complete and record.window_s[1] > warmup_s:
        return (
            f"no request was measured: all {len(early)} began in the {warmup_s:g} s of warm-up, and took up "
            f"to {longest_s:.1f} s; a longer --duration, or --warmup 0"
        )
    return f"no request was measured: the run ended within its {warmup_s:g} s of warm-up"


def _span(values_s: list[float]) -> str:
    low, high = f"{min(values_s):.1f}", f"{max(values_s):.1f}"
    return low if low == high else f"{low} to {high}"


def _about_lengths(record: Record, measured: list[RequestSample]) -> list[str]:
    asked = {
        traffic["name"]: traffic["input_tokens"]
        for flow in record.load["flows"]
        for traffic in flow["traffic"]
        if traffic["kind"] == "text" and flow["shape"]["kind"] != "trace"
    }
    notes = []
    for name, tokens in asked.items():
        got = [one.prompt_tokens for one in measured if one.traffic == name and one.prompt_tokens]
        if got and abs(float(np.median(got)) / tokens - 1) > _LENGTH_TOLERANCE:
            notes.append(
                f"{name}: prompts have {np.median(got):.0f} tokens in the median, {tokens} were asked for"
            )
    return notes
