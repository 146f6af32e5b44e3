"""Facts of a live server, judged: batching, lengths, KV cache, series that stay at zero, calls."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.doctor.base import Diagnosis
from trtbuild.doctor.live import LiveFacts, LiveModel
from trtbuild.doctor.prometheus import Metrics

_KV = "nv_trt_llm_kv_cache_block_metrics"
_BATCHER = "nv_trt_llm_inflight_batcher_metrics"
_REQUESTS = "nv_trt_llm_request_metrics"
# TensorRT-LLM's log: "... maxAttentionWindow and maxSequenceLen are too large ... reduced to 91456".
_CUT = re.compile(r"maxSequenceLen[^\n]*?(?:reduced|reducing|set)[^\n]*?to\s+(\d+)")
_WRONG_CALL = re.compile(
    r"doesn't support models with decoupled transaction policy|"
    r"only supported if model is deployed using decoupled"
)
_FULL = 0.95
# Of decoupled models, where the server is started for it; in Triton 24.11 (2.52.0) and later.
_FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
_FIRST_RESPONSE_SINCE = (2, 52)


def check_live(facts: LiveFacts) -> list[Diagnosis]:
    """All checks of a live server."""
    return [item for check in _CHECKS for item in check(facts)]


def _health(facts: LiveFacts) -> Iterator[Diagnosis]:
    failed = [model for model in facts.models if model.state != "READY"]
    for model in failed:
        yield Diagnosis(
            "models",
            "error",
            f"{model.name} is {model.state}: {model.reason or 'no reason given'}",
            "`trtbuild lint REPO` tells most reasons before the start",
        )
    if not facts.ready:
        yield Diagnosis(
            "models", "error", "the server is not ready", "wait until it has loaded, or read its log"
        )
    elif not failed:
        yield Diagnosis(
            "models", "ok", f"ready: {', '.join(model.name for model in facts.models) or 'no model named'}"
        )
        if not facts.models and facts.index_is_closed:
            yield Diagnosis(
                "models",
                "warning",
                "the server does not list its models, so that none can be looked at",
                "name its metrics (--metrics HOST:PORT) or its repository (trtbuild doctor REPO --url …)",
            )


def _metrics(facts: LiveFacts) -> Iterator[Diagnosis]:
    if facts.metrics is None:
        yield Diagnosis(
            "metrics",
            "warning",
            "the metrics port does not answer: batching, KV cache and series cannot be judged",
            "name it: --metrics HOST:PORT; the server must run without --allow-metrics=false",
        )


def _engines(facts: LiveFacts) -> list[LiveModel]:
    return [model for model in facts.models if model.backend == "tensorrtllm"]


def _batching(facts: LiveFacts) -> Iterator[Diagnosis]:
    for engine in _engines(facts):
        kind = engine.parameter("gpt_model_type")
        static = (
            facts.metrics is not None
            and facts.metrics.value("nv_trt_llm_v1_metrics", model=engine.name) is not None
        )
        if kind.upper() == "V1" or static:
            yield Diagnosis(
                "batching",
                "error",
                f"{engine.name} batches statically (gpt_model_type {kind or 'unknown'})",
                "set gpt_model_type inflight_fused_batching",
            )
            continue
        yield from _bls_limit(facts, engine)
        if facts.metrics is None:
            continue
        running = facts.metrics.value(
            _BATCHER, model=engine.name, inflight_batcher_specific_metric="generation_requests"
        )
        if running is None:
            yield Diagnosis(
                "batching",
                "warning",
                f"{engine.name} exports no {_BATCHER}",
                "the Python runtime of TensorRT-LLM has none; use the C++ backend, or measure at the client",
            )
        else:
            yield _in_flight(facts.metrics, engine, running)


def _in_flight(metrics: Metrics, engine: LiveModel, running: float) -> Diagnosis:
    """Whether requests really share steps: where some wait while one is scheduled, they do not."""
    most, scheduled, waiting = (
        metrics.value(_REQUESTS, model=engine.name, request_type=kind) or 0
        for kind in ("max", "scheduled", "waiting")
    )
    if waiting and scheduled <= 1 < most:
        return Diagnosis(
            "batching",
            "info",
            f"{engine.name} runs {scheduled:.0f} of {most:.0f} requests at this moment; {waiting:.0f} wait",
            "ask again: if it stays so, the engine's KV cache is disabled or too small for a second request",
        )
    room = f" of {most:.0f} that it can run" if most else ""
    return Diagnosis(
        "batching", "ok", f"{engine.name} batches in flight: {running:.0f} requests generate now{room}"
    )


def _bls_limit(facts: LiveFacts, engine: LiveModel) -> Iterator[Diagnosis]:
    places = int(engine.config.get("max_batch_size") or 0)
    for model in facts.models:
        called = model.parameter("tensorrt_llm_model_name") or (
            "tensorrt_llm" if model.name == "tensorrt_llm_bls" else ""
        )
        if called == engine.name and model.instances < places:
            yield Diagnosis(
                "batching",
                "warning",
                f"{model.instances} instance{'s' if model.instances > 1 else ''} of {model.name} "
                f"limit {engine.name} to "
                f"{model.instances} of {places} requests",
                f"set its instance count to {places}, or call the ensemble",
            )


def _lengths(facts: LiveFacts) -> Iterator[Diagnosis]:
    cuts = _CUT.findall(facts.log)
    if cuts:
        yield Diagnosis(
            "lengths",
            "warning",
            f"the longest sequence was cut to {cuts[-1]} tokens when an engine loaded: its KV "
            "cache is too small",
            "give the KV cache more memory, or promise clients no more than that",
        )
    if facts.metrics is None:
        return
    for engine in _engines(facts):
        blocks = facts.metrics.value(_KV, model=engine.name, kv_cache_block_type="max")
        size = facts.metrics.value(_KV, model=engine.name, kv_cache_block_type="tokens_per")
        for front in facts.models:
            wanted = front.parameter("max_seq_len")
            if front.parameter("engine_model") == engine.name and wanted.isdigit() and blocks and size:
                pool = int(blocks * size)
                text = f"the KV cache holds {pool} tokens, and {front.name} takes sequences of {wanted}"
                if pool < int(wanted):
                    remedy = "give the KV cache more memory, or lower max_seq_len"
                    yield Diagnosis("lengths", "error", f"{engine.name}: {text}", remedy)
                else:
                    yield Diagnosis("lengths", "ok", f"{engine.name}: {text}")


def _kv(facts: LiveFacts) -> Iterator[Diagnosis]:
    for engine in _engines(facts) if facts.metrics is not None else ():
        metrics = facts.metrics or Metrics()
        most = metrics.value(_KV, model=engine.name, kv_cache_block_type="max")
        used = metrics.value(_KV, model=engine.name, kv_cache_block_type="used")
        reused = metrics.value(_KV, model=engine.name, kv_cache_block_type="reused")
        waiting = metrics.value(_REQUESTS, model=engine.name, request_type="waiting") or 0
        if not most or used is None:
            continue
        reuse = engine.parameter("enable_kv_cache_reuse").lower() in ("true", "1")
        hits = f", {reused:.0f} blocks reused so far" if reused is not None else ""
        hits = hits or (", and it does not export how many were reused" if reuse else "")
        text = f"{engine.name}: {used:.0f} of {most:.0f} KV blocks are used ({100 * used / most:.0f} %){hits}"
        if used >= _FULL * most and waiting:
            yield Diagnosis(
                "kv",
                "warning",
                f"{text}, and {waiting:.0f} requests wait",
                "give the KV cache more memory, shorten sequences, or let fewer requests in",
            )
        else:
            yield Diagnosis("kv", "ok", text)
        answered = metrics.value("nv_inference_request_success", model=engine.name) or 0
        if reused == 0 and answered >= 10 and reuse:
            yield Diagnosis(
                "kv",
                "warning",
                f"{engine.name}: reuse is on, and none of {answered:.0f} requests hit a block",
                "prompts differ at their beginning: `trtbuild prefix` finds where, and what "
                "could move to the end",
            )


def _series(facts: LiveFacts) -> Iterator[Diagnosis]:
    if facts.metrics is None:
        return
    for model in facts.models:
        answered = facts.metrics.value("nv_inference_request_success", model=model.name) or 0
        compute = facts.metrics.value("nv_inference_compute_infer_duration_us", model=model.name)
        if answered and compute == 0:
            yield Diagnosis(
                "series",
                "info",
                f"nv_inference_compute_infer_duration_us of {model.name} stays at 0 after "
                f"{answered:.0f} requests",
                "decoupled engines never count it: build dashboards on nv_trt_llm_* and on the "
                "model in front",
            )
        yield from _queue(facts.metrics, model, answered)
    yield from _first_token(facts, facts.metrics)


def _first_token(facts: LiveFacts, metrics: Metrics) -> Iterator[Diagnosis]:
    without = [
        model.name
        for model in facts.models
        if model.decoupled and metrics.value(f"{_FIRST_RESPONSE}_count", model=model.name) is None
    ]
    if without:
        old = facts.version and _numbers(facts.version) < _FIRST_RESPONSE_SINCE
        yield Diagnosis(
            "series",
            "info",
            f"there is no time to first token of {', '.join(without)}",
            f"server {facts.version} has none (24.11 is the first with it): measure at the client"
            if old
            else "start the server with --metrics-config histogram_latencies=true",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _queue(metrics: Metrics, model: LiveModel, answered: float) -> Iterator[Diagnosis]:
    queue = metrics.value("nv_inference_queue_duration_us", model=model.name) or 0
    compute = metrics.value("nv_inference_compute_infer_duration_us", model=model.name) or 0
    if model.backend == "python" and answered >= 10 and compute and queue > compute:
        yield Diagnosis(
            "queue",
            "warning",
            f"requests of {model.name} wait {queue / answered / 1000:.1f} ms for "
            f"{compute / answered / 1000:.1f} ms of work",
            f"more instances than {model.instances}",
        )


def _calls(facts: LiveFacts) -> Iterator[Diagnosis]:
    wrong = len(_WRONG_CALL.findall(facts.log))
    streaming = [model.name for model in facts.models if model.decoupled]
    if wrong:
        yield Diagnosis(
            "calls",
            "warning",
            f"{wrong} calls of a streaming model by a way that cannot stream, or the other way round",
            f"{', '.join(streaming) or 'decoupled models'}: ModelStreamInfer or /generate_stream, "
            "never /infer",
        )
    elif streaming:
        yield Diagnosis(
            "calls",
            "info",
            f"streaming models: {', '.join(streaming)}; clients call them by ModelStreamInfer, /generate or "
            "/generate_stream. /infer and unary gRPC are refused, which the server neither logs nor counts",
        )
    for name in streaming if facts.metrics is not None else ():
        metrics = facts.metrics or Metrics()
        failed = metrics.value("nv_inference_request_failure", model=name) or 0
        good = metrics.value("nv_inference_request_success", model=name) or 0
        if failed and not good:
            yield Diagnosis(
                "calls",
                "warning",
                f"all {failed:.0f} requests of the streaming model {name} failed",
                "call it by ModelStreamInfer or /generate_stream; /infer and unary gRPC are refused",
            )


_CHECKS = (_health, _metrics, _batching, _lengths, _kv, _series, _calls)
