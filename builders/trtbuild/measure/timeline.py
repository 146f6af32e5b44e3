"""The server's side of a run: Triton's and the engine's metrics, GPU or CPU and memory, once a period.

``python -m trtbuild.measure.timeline`` is a process of its own, so that parsing a scrape never makes the load
generator late; it shares the monotonic clock. Series by model (a record's ``timeline`` rows are
``(t_s, model, series, value)``):

=====================  =====================================================================================
series                 what it is
=====================  =====================================================================================
active, scheduled,     requests in the engine: all, in the step, in the context phase, in the generation
context, generation,   phase, waiting for a place, paused (gauges of ``nv_trt_llm_*``)
waiting, paused
kv_used, kv_max,       blocks of the paged KV pool in use and in all; tokens a block; blocks reused so far
kv_tokens_per_block,
kv_reused
iteration              steps of the engine so far
success, failure       requests so far
queue_us, compute_us   time in Triton's queue and in the model, summed over requests so far
executions,            executions of a model, and requests in them, so far: their ratio is the batch size
inferences
pending                requests in Triton's queue now
tokens_in, tokens_out  tokens of the text front so far, of all classes of traffic
cpu_cores              CPU in use since the last sample, by the model whose process it is (``""``: Triton)
rss_bytes              memory of all the server's processes (model ``""``)
machine_cpu_cores      CPU in use on the machine (model ``""``)
gpu_busy, gpu_bytes,   utilisation 0 to 1, memory in use, power (model ``gpu0``, …)
gpu_watts
wall_jump_s            the wall clock against the monotonic one, since the first sample (model ``""``)
=====================  =====================================================================================
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from trtbuild.doctor.prometheus import Metrics, parse_metrics

SCRAPE_S = 2.0  # how long a scrape may take
_LABELLED = {  # series → (metric, label, its value)
    "active": ("nv_trt_llm_request_metrics", "request_type", "active"),
    "scheduled": ("nv_trt_llm_request_metrics", "request_type", "scheduled"),
    "context": ("nv_trt_llm_request_metrics", "request_type", "context"),
    "waiting": ("nv_trt_llm_request_metrics", "request_type", "waiting"),
    "paused": ("nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric", "paused_requests"),
    "generation": (
        "nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric", "generation_requests",
    ),
    "kv_used": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "used"),
    "kv_max": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "max"),
    "kv_tokens_per_block": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "tokens_per"),
    "kv_reused": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "reused"),
    "iteration": ("nv_trt_llm_general_metrics", "general_type", "iteration_counter"),
    "tokens_in": ("trtbuild_tokens_total", "kind", "input"),
    "tokens_out": ("trtbuild_tokens_total", "kind", "output"),
}  # fmt: skip
_PLAIN = {
    "success": "nv_inference_request_success",
    "failure": "nv_inference_request_failure",
    "queue_us": "nv_inference_queue_duration_us",
    "compute_us": "nv_inference_compute_infer_duration_us",
    "executions": "nv_inference_exec_count",
    "inferences": "nv_inference_count",
    "pending": "nv_inference_pending_request_count",
}
_GPU = {
    "gpu_busy": "nv_gpu_utilization",
    "gpu_bytes": "nv_gpu_memory_used_bytes",
    "gpu_watts": "nv_gpu_power_usage",
}

Row = tuple[str, str, float]  # model, series, value


def metric_rows(metrics: Metrics) -> Iterator[Row]:
    """The series of a scrape."""
    models = {sample.labels["model"] for sample in metrics.samples if "model" in sample.labels}
    for model in sorted(models):
        for series, (name, label, kind) in _LABELLED.items():
            value = metrics.value(name, model=model, **{label: kind})
            if value is not None:
                yield model, series, value
        for series, name in _PLAIN.items():
            value = metrics.value(name, model=model)
            if value is not None:
                yield model, series, value
    for series, name in _GPU.items():
        for number, sample in enumerate(metrics.find(name)):
            yield f"gpu{number}", series, sample.value


def scrape(address: str) -> Metrics | None:
    """One reading of a metrics port; None where it does not answer in time."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=SCRAPE_S) as answer:
            return parse_metrics(answer.read().decode("utf-8", errors="replace"))
    except (OSError, ValueError):
        return None


class Processes:
    """CPU and memory of a server's processes on this machine, by the model that they run."""

    def __init__(self, pid: int | None) -> None:
        import psutil

        from trtbuild.measure.bench_local import CpuClock

        self._psutil = psutil
        self._clock = CpuClock(pid) if pid is not None else None
        self._pid = pid
        self._before: dict[str, float] = {}
        self._at_s = 0.0
        psutil.cpu_percent()  # the first value has nothing to compare with

    def rows(self) -> Iterator[Row]:
        yield "", "machine_cpu_cores", self._psutil.cpu_percent() / 100 * (self._psutil.cpu_count() or 1)
        if self._clock is None or self._pid is None:
            return
        with contextlib.suppress(self._psutil.Error):
            used, now_s = self._clock.read(), time.monotonic()
            del used["client"]
            if self._before:
                for role, seconds in used.items():
                    share = (seconds - self._before.get(role, 0.0)) / (now_s - self._at_s)
                    yield "" if role == "tritonserver" else role, "cpu_cores", share
            self._before, self._at_s = used, now_s
            server = self._psutil.Process(self._pid)
            family = (server, *server.children(recursive=True))
            yield "", "rss_bytes", float(sum(process.memory_info().rss for process in family))


class Nvml:
    """The GPUs of this machine, where Triton does not report them."""

    def __init__(self) -> None:
        self._nvml: Any = None
        with contextlib.suppress(Exception):  # no library or no driver: no GPU to read
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml

    def rows(self) -> Iterator[Row]:
        if self._nvml is None:
            return
        for number in range(self._nvml.nvmlDeviceGetCount()):
            handle = self._nvml.nvmlDeviceGetHandleByIndex(number)
            with contextlib.suppress(self._nvml.NVMLError):
                yield f"gpu{number}", "gpu_busy", self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                yield f"gpu{number}", "gpu_bytes", float(self._nvml.nvmlDeviceGetMemoryInfo(handle).used)
                yield f"gpu{number}", "gpu_watts", self._nvml.nvmlDeviceGetPowerUsage(handle) / 1000


def main() -> None:
    """Writes a JSON line ``[t_s, [[model, series, value], …]]`` a period, until its reader leaves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metrics", help="HOST:PORT of the server's metrics")
    parser.add_argument("--pid", type=int, help="of tritonserver, where it runs here")
    parser.add_argument("--here", action="store_true", help="the server runs on this machine")
    parser.add_argument("--period", type=float, default=0.5)
    asked = parser.parse_args()
    readers: list[Any] = [Processes(asked.pid), Nvml()] if asked.here else []
    wall_offset_s = time.time() - time.monotonic()
    due_s = time.monotonic()
    os.nice(10)  # whoever is measured, and whoever measures, goes first
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        while True:
            at_s = time.monotonic()
            rows: list[Row] = [("", "wall_jump_s", time.time() - at_s - wall_offset_s)]
            metrics = scrape(asked.metrics) if asked.metrics else None
            rows += [] if metrics is None else metric_rows(metrics)
            told = {series for _, series, _ in rows}
            for reader in readers:
                rows += [row for row in reader.rows() if row[1] not in told]
            sys.stdout.write(json.dumps([at_s, rows]) + "\n")
            sys.stdout.flush()
            due_s = max(due_s + asked.period, time.monotonic())
            time.sleep(max(0.0, due_s - time.monotonic()))


if __name__ == "__main__":
    main()
