"""The local engine without a server: OpenVINO GenAI driven in one process, as a baseline for the served path.

Runs as ``python -m trtbuild.measure.in_process ENGINE_FOLDER SETTINGS`` and answers one JSON line a request
line, so that it can be interleaved with a server that has the same weights, pool and limits.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class EngineSettings:
    """What both arms have in common; ``threads`` 0 leaves the choice to the engine."""

    num_kv_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    dynamic_split_fuse: bool
    threads: int = 0


@dataclass(frozen=True)
class Burst:
    """Requests that start together: one prompt's token ids a stream, each answered with ``max_tokens``."""

    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int


@dataclass(frozen=True)
class BurstResult:
    """``ttft_s`` is that of the slowest stream; ``cpu_s`` user and system time of the process."""

    seconds: float
    tokens: int
    cpu_s: float
    ttft_s: float


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def load_pipeline(weights: Path, settings: EngineSettings) -> Any:
    """The pipeline with the given limits, on the CPU."""
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = settings.num_kv_blocks
    scheduler.max_num_seqs = settings.max_num_seqs
    scheduler.max_num_batched_tokens = settings.max_num_batched_tokens
    scheduler.enable_prefix_caching = settings.enable_prefix_caching
    scheduler.dynamic_split_fuse = settings.dynamic_split_fuse
    properties: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}  # as the served engine
    if settings.threads:
        properties["INFERENCE_NUM_THREADS"] = settings.threads
    return openvino_genai.ContinuousBatchingPipeline(str(weights), scheduler, "CPU", properties)


def run_burst(pipeline: Any, burst: Burst) -> BurstResult:
    """Runs the burst to its end: exactly ``max_tokens`` a stream, greedy."""
    import numpy as np
    import openvino
    import openvino_genai

    config = openvino_genai.GenerationConfig(
        max_new_tokens=burst.max_tokens, min_new_tokens=burst.max_tokens, apply_chat_template=False
    )
    begun, cpu_begun = time.perf_counter(), _cpu_s()
    waiting = {
        key: pipeline.add_request(key, openvino.Tensor(np.asarray([prompt], dtype=np.int64)), config)
        for key, prompt in enumerate(burst.prompts)
    }
    without_first, tokens, ttft_s = set(waiting), 0, 0.0
    while waiting:
        pipeline.step()
        for key, handle in list(waiting.items()):
            while handle.can_read():
                output = next(iter(handle.read().values()))
                tokens += len(output.generated_ids)
                if key in without_first:
                    without_first.discard(key)
                    ttft_s = time.perf_counter() - begun
                if output.finish_reason.name != "NONE":
                    waiting.pop(key, None)
    return BurstResult(time.perf_counter() - begun, tokens, _cpu_s() - cpu_begun, ttft_s)


def main() -> None:
    """Reads ``Burst`` objects as JSON lines and writes ``BurstResult`` objects; "ready" comes first."""
    weights, settings = Path(sys.argv[1]), EngineSettings(**json.loads(sys.argv[2]))
    pipeline = load_pipeline(weights, settings)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        burst = Burst(tuple(tuple(prompt) for prompt in asked["prompts"]), asked["max_tokens"])
        print(json.dumps(asdict(run_burst(pipeline, burst))), flush=True)


if __name__ == "__main__":
    main()
