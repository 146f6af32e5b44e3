"""What the load generator itself can do: ``python -m trtbuild.measure.generator_run``.

2,000 streams at once against a fake Triton (``tritonstream.testing``) on another core; the generator has one.
Arrivals are Poisson, so that the number of streams settles at rate × length of an answer. Reported: how late
requests were sent, the generator's share of its core, and the tokens a second that it read meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

from trtbuild.measure.bench import bench
from trtbuild.measure.load.generator import Progress
from trtbuild.measure.load.spec import Flow, LoadSpec, Poisson, TextTraffic
from trtbuild.measure.records.record import Record
from trtbuild.measure.records.store import Store
from trtbuild.measure.sdk_run import fake_triton
from trtbuild.measure.server import MeasuredServer

GOAL_S = 0.005  # send-time error at P99
MANY = 1.2  # times the streams that were asked for


def load_of(streams: int, tokens: int, answer_s: float, duration_s: float) -> LoadSpec:
    """Arrivals that keep so many streams open, once an answer's length has gone by."""
    traffic = TextTraffic(name="short", input_tokens=64, output_tokens=tokens)
    flow = Flow(model="llm", shape=Poisson(rate_per_s=streams / answer_s), traffic=(traffic,))
    return LoadSpec(flows=(flow,), duration_s=answer_s + duration_s, warmup_s=1.25 * answer_s)


def measure(streams: int, tokens: int, answer_s: float, duration_s: float) -> tuple[Record, int]:
    """The record of one run, and the most streams that were open at once."""
    cores = sorted(os.sched_getaffinity(0))
    most = [0]

    def look(progress: Progress) -> None:
        most[0] = max(most[0], progress.running_max)

    with contextlib.ExitStack() as stack:
        os.sched_setaffinity(0, cores[1:] or cores)  # inherited by the fake
        options = ("--between-ms", f"{1000 * answer_s / tokens:g}")
        address = stack.enter_context(fake_triton(tokens, *options))
        os.sched_setaffinity(0, cores[:1])
        stack.callback(os.sched_setaffinity, 0, cores)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        load = load_of(streams, tokens, answer_s, duration_s)
        record = bench(MeasuredServer(address), load, Store(folder / "runs.sqlite"), on_progress=look)
        return record, most[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-generator", description=__doc__)
    parser.add_argument("--streams", type=int, default=2000, help="at once")
    parser.add_argument("--tokens", type=int, default=32, help="of an answer")
    parser.add_argument("--answer", type=float, default=16.0, metavar="SECONDS", help="that an answer takes")
    parser.add_argument("--duration", type=float, default=20.0, metavar="SECONDS", help="beside the start")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    record, most = measure(asked.streams, asked.tokens, asked.answer, asked.duration)
    group, own = record.metrics["all"], record.generator
    figures = {
        "streams_max": most, "requests": group["requests"], "ok": group["ok"], **own,
        "send_error_s": {part: group["send_error_s"][part]["value"] for part in ("p50", "p95", "p99")},
        "tokens_per_s": group["tokens_out_per_s"]["value"],
        "requests_per_s": group["requests_per_s"]["value"],
    }  # fmt: skip
    if asked.json:
        print(json.dumps(figures, indent=1))
    else:
        late = ", ".join(
            f"{part.upper()} {1e3 * value:.2f}" for part, value in figures["send_error_s"].items()
        )
        print(f"{most} streams at once, {figures['tokens_per_s']:.0f} tokens/s, {group['requests']} requests")
        print(f"send-time error, ms: {late}; goal: P99 below {1e3 * GOAL_S:g}")
        print(f"the generator used {own['cpu_share']:.0%} of its core")
        if most > MANY * asked.streams:
            wanted = asked.streams * asked.tokens / asked.answer
            print(f"not a figure: the cores did not keep up with {wanted:.0f} tokens/s, so that answers took")
            print(f"longer than {asked.answer:g} s and more were open than asked for; give a longer --answer")
    return 0 if group["send_error_s"]["p99"]["value"] < GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
