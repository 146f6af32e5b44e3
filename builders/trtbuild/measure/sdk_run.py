"""Measures ``tritonstream`` against raw stubs and tritonclient: ``python -m trtbuild.measure.sdk_run``.

The server is a fake Triton in a process of its own, which answers at once. Arms run in turn, round after
round, and ratios are medians of the ratios within a round. CPU is the client process's.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trtbuild.measure.sdk_arms import ARMS, MODEL, PROMPT, Load

# (arm, baseline, least ratio of tokens/s)
GOALS = (
    ("tritonstream.Client", "raw stub, threads", 0.9),
    ("tritonstream.AsyncClient", "raw stub, asyncio", 0.9),
    ("tritonstream.Client", "tritonclient, a client a stream", 2.0),
    ("tritonstream.Client", "tritonclient, one stream for all", 2.0),
    ("tritonstream.AsyncClient", "tritonclient, a client a stream", 2.0),
    ("tritonstream.AsyncClient", "tritonclient, one stream for all", 2.0),
)
FLAT_BYTES = 4 << 20  # growth of resident memory that is no leak: arenas and caches that fill up


@contextmanager
def fake_triton(tokens: int, *options: str) -> Iterator[str]:
    """A quick fake server; gives its address."""
    command = [sys.executable, "-m", "tritonstream.testing", "--tokens", str(tokens), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def compare(load: Load, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Runs all arms in turn; returns tokens/s and CPU µs a token of each, by round."""
    found: dict[str, dict[str, list[float]]] = {name: {"tokens_per_s": [], "cpu_us": []} for name in ARMS}
    total = load.streams * load.rounds * load.tokens
    for number in range(rounds + 1):
        for name, arm in ARMS.items():
            gc.collect()
            cpu, begun = time.process_time(), time.perf_counter()
            arm(load)
            if number:  # the first round warms up
                found[name]["tokens_per_s"].append(total / (time.perf_counter() - begun))
                found[name]["cpu_us"].append((time.process_time() - cpu) / total * 1e6)
    return found


def ratio(
    found: dict[str, dict[str, list[float]]], arm: str, baseline: str, figure: str = "tokens_per_s"
) -> float:
    """The median of an arm's figure over the baseline's in the same round."""
    pairs = zip(found[arm][figure], found[baseline][figure], strict=True)
    return statistics.median(mine / theirs for mine, theirs in pairs)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(address: str, requests: int) -> list[tuple[int, int]]:
    """Resident bytes of a process that sends this many requests, each tenth of them: (requests, bytes)."""
    from tritonstream import Client

    samples = []
    with Client(address) as client:
        for number in range(1, requests + 1):
            client.generate(MODEL, PROMPT, max_tokens=8)
            if number % (requests // 10) == 0:
                gc.collect()
                samples.append((number, resident_bytes()))
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-sdk", description=__doc__)
    parser.add_argument("--streams", type=int, default=64, help="requests at once")
    parser.add_argument("--tokens", type=int, default=64, help="tokens a request")
    parser.add_argument("--repeat", type=int, default=4, help="requests of each stream in a run")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each arm")
    parser.add_argument(
        "--memory", type=int, default=0, metavar="N", help="send N requests and watch the memory"
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    options = parser.parse_args()
    if options.memory:
        with fake_triton(1) as address:
            return _report_memory(memory(address, options.memory))
    with fake_triton(options.tokens) as address:
        found = compare(Load(address, options.streams, options.repeat, options.tokens), options.rounds)
    goals = [(arm, base, least, ratio(found, arm, base)) for arm, base, least in GOALS]
    if options.json:
        print(json.dumps({"arms": found, "ratios": goals}, indent=1))
        return 0
    for name, figures in found.items():
        speed, cpu = (statistics.median(figures[key]) for key in ("tokens_per_s", "cpu_us"))
        print(f"{name:34} {speed:8.0f} tokens/s {cpu:7.1f} µs CPU a token")
    for arm, base, least, value in goals:
        mark = "" if value >= least else f"   below {least}"
        cpu = ratio(found, arm, base, "cpu_us")
        print(f"{arm:26} / {base:34} {value:5.2f}   CPU {cpu:4.2f}{mark}")
    return 0 if all(value >= least for _, _, least, value in goals) else 1


def _report_memory(samples: list[tuple[int, int]]) -> int:
    for number, size in samples:
        print(f"{number:8} requests {size / 2**20:8.2f} MiB")
    growth = samples[-1][1] - samples[0][1]
    print(f"growth after the first tenth: {growth / 2**20:.2f} MiB")
    return 0 if growth <= FLAT_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
