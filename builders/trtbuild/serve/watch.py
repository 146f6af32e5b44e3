"""Notices a server that looks healthy and is not.

Triton stays ready when a stub was killed, and when an engine hangs: so the stubs' processes are watched, and
each engine must make progress, or answer a request for one token when it is idle. Where the stubs are out of
sight, in a container, the text fronts are asked as well.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trtbuild.serve.ports import LOOPBACK
from trtbuild.serve.process import is_alive
from trtbuild.serve.state import ServerRecord

PROBE_EVERY_S = 30.0
PROBE_TIMEOUT_S = 30.0
# A busy engine whose iteration counter stands still this long hangs; the longest single iteration seen, a
# prefill of 8,192 tokens on two cores, takes about 30 s.
STALL_S = 180.0

# A front asks its engine, whose queue may be long without a gauge that says so: once is not enough.
FRONT_FAILURES = 3

_BACKEND = re.compile(r'^\s*backend:\s*"tensorrtllm"', re.MULTILINE)
_FRONT = re.compile(r'^\s*key:\s*"engine_model"', re.MULTILINE)
_GAUGE = re.compile(r"^nv_trt_llm_(?:request|general)_metrics\{([^}]*)\} (\S+)$", re.MULTILINE)
# One token; -1: no end id, so that an answer always holds it.
_PROBE = {"input_ids": [1], "input_lengths": [1], "request_output_len": [1], "end_id": [-1]}
_TEXT = {"text_input": "a", "max_tokens": 1}


def engines_of(repository: Path) -> list[str]:
    """Names of the repository's engine models."""
    configs = sorted(repository.glob("*/config.pbtxt"))
    return [config.parent.name for config in configs if _BACKEND.search(config.read_text("utf-8"))]


def fronts_of(repository: Path) -> list[str]:
    """Names of the repository's text fronts."""
    configs = sorted(repository.glob("*/config.pbtxt"))
    return [config.parent.name for config in configs if _FRONT.search(config.read_text("utf-8"))]


def warm(record: ServerRecord, repository: Path) -> dict[str, str]:
    """Asks each text front for one token, so that no user waits for what only the first request pays.

    Triton's own warm-up of a front would run before its engine exists.

    Returns:
        What failed, by front.
    """
    answers = {name: probe(record.http_port, name, _TEXT) for name in fronts_of(repository)}
    return {name: fault for name, fault in answers.items() if fault is not None}


@dataclass
class _Engine:
    iteration: float = -1.0
    moved_s: float = 0.0
    probed_s: float = 0.0


@dataclass
class _Front:
    failures: int = 0
    probed_s: float = 0.0


class Watch:
    """Health of one server that was ready, with these stubs."""

    def __init__(self, record: ServerRecord, repository: Path, stubs: dict[int, float]) -> None:
        self._record = record
        self._stubs = stubs
        now_s = time.monotonic()
        self._engines = {name: _Engine(moved_s=now_s, probed_s=now_s) for name in engines_of(repository)}
        fronts = fronts_of(repository) if record.on_gpu else []
        self._fronts = {name: _Front(probed_s=now_s) for name in fronts}

    def fault(self) -> str | None:
        """What is wrong, or None. Takes up to ``PROBE_TIMEOUT_S`` when an idle engine is due to be asked."""
        for pid, start_s in self._stubs.items():
            if not is_alive(pid, start_s):
                return f"the Python stub {pid} is gone"
        now_s = time.monotonic()
        due = [name for name, engine in self._engines.items() if now_s - engine.probed_s >= PROBE_EVERY_S]
        if not due:
            return self._front_fault(now_s)
        counters = read_counters(self._record.metrics_port)
        for name in due:
            self._engines[name].probed_s = now_s
            fault = self._engine_fault(name, counters.get(name, {}), now_s)
            if fault:
                return fault
        return None

    def _front_fault(self, now_s: float) -> str | None:
        for name, front in self._fronts.items():
            if now_s - front.probed_s < PROBE_EVERY_S:
                continue
            front.probed_s = now_s
            fault = probe(self._record.http_port, name, _TEXT)
            front.failures = front.failures + 1 if fault else 0
            if front.failures >= FRONT_FAILURES:
                return f"{front.failures} times in a row: {fault}"
        return None

    def _engine_fault(self, name: str, counters: dict[str, float], now_s: float) -> str | None:
        engine = self._engines[name]
        iteration = counters.get("iteration_counter", -1.0)
        if iteration != engine.iteration:
            engine.iteration, engine.moved_s = iteration, now_s
            return None
        if counters.get("active", 0.0) > 0:
            stood_s = now_s - engine.moved_s
            return f"{name} has made no step for {stood_s:.0f} s" if stood_s > STALL_S else None
        return probe(self._record.http_port, name)


def read_counters(metrics_port: int) -> dict[str, dict[str, float]]:
    """Each engine's ``active`` requests and ``iteration_counter``; empty if the metrics cannot be read."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{metrics_port}/metrics", timeout=10) as answer:
            text = answer.read().decode("utf-8", errors="replace")
    except OSError:
        return {}
    counters: dict[str, dict[str, float]] = {}
    for labels, value in _GAUGE.findall(text):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        kind = pairs.get("general_type") or pairs.get("request_type", "")
        counters.setdefault(pairs.get("model", ""), {})[kind] = float(value)
    return counters


def probe(http_port: int, model: str, body: Mapping[str, object] | None = None) -> str | None:
    """Asks a model for one token; returns what is wrong. A refusal is an answer, a failure is not.

    Args:
        body: the request; default: an engine's.
    """
    request = urllib.request.Request(
        f"http://{LOOPBACK}:{http_port}/v2/models/{model}/generate_stream",
        data=json.dumps(body or _PROBE).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PROBE_TIMEOUT_S) as answer:
            text = answer.read().decode("utf-8", errors="replace")
    except urllib.error.HTTPError as error:
        return (
            None if error.code < 500 else f"{model} does not answer: {error.read().decode(errors='replace')}"
        )
    except OSError as error:
        return f"{model} did not answer a request for one token: {error}"
    return f"{model} failed: {text.strip()}" if "the engine failed" in text else None
