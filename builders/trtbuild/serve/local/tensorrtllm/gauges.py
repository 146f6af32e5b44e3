"""The engine's counters under the metric names of NVIDIA's tensorrtllm backend (custom_metrics_reporter.cc).

What the engine does not know is absent: reused blocks, GPU and pinned memory, micro batches, paused requests.
"""

from __future__ import annotations

from typing import Any

from .jobs import Gauges
from .limits import Limits

_FAMILIES = {  # short name: (metric, its type label, help text as NVIDIA's)
    "request": ("nv_trt_llm_request_metrics", "request_type", "TRT LLM request metrics"),
    "kv": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "TRT LLM KV cache block metrics"),
    "batcher": (
        "nv_trt_llm_inflight_batcher_metrics",
        "inflight_batcher_specific_metric",
        "TRT LLM inflight_batcher-specific metrics",
    ),
    "general": ("nv_trt_llm_general_metrics", "general_type", "General TRT LLM metrics"),
}


class Exporter:
    """Metrics of one model. A metric call costs 18 us in the stub, so only changed values are set.

    Args:
        pb_utils: the stub's ``triton_python_backend_utils``.
    """

    def __init__(self, pb_utils: Any, model: str, version: str, limits: Limits) -> None:
        self._labels = {"model": model, "version": version}
        self._pool_blocks = limits.pool_blocks
        self._families = {
            short: pb_utils.MetricFamily(name=name, description=text, kind=pb_utils.MetricFamily.GAUGE)
            for short, (name, _, text) in _FAMILIES.items()
        }
        self._metrics: dict[tuple[str, str], Any] = {}
        self._values: dict[tuple[str, str], float] = {}
        self._set("request", "max", limits.max_sequences)
        self._set("kv", "max", limits.pool_blocks)
        self._set("kv", "tokens_per", limits.tokens_per_block)

    def update(self, gauges: Gauges) -> None:
        """Sets all that follows from the engine's counters."""
        used, most = gauges.used_blocks, self._pool_blocks
        values = {
            ("request", "active"): gauges.active,
            ("request", "scheduled"): gauges.scheduled,
            ("request", "context"): gauges.context,
            ("request", "waiting"): gauges.waiting,
            ("kv", "used"): used,
            ("kv", "free"): most - used,
            ("kv", "fraction"): used / most,
            ("batcher", "generation_requests"): gauges.generation,
            ("general", "timestamp"): gauges.timestamp_s,
            ("general", "iteration_counter"): gauges.iteration,
        }
        for (family, kind), value in values.items():
            self._set(family, kind, value)

    def _set(self, family: str, kind: str, value: float) -> None:
        key = (family, kind)
        if self._values.get(key) == value:
            return
        if key not in self._metrics:
            label = _FAMILIES[family][1]
            self._metrics[key] = self._families[family].Metric(labels={**self._labels, label: kind})
        self._metrics[key].set(value)
        self._values[key] = value
