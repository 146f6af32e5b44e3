"""Runs the engine in a process of its own: ``python -m tests.support.engine_child generate|ir PATH``.

Not in the test's process: OpenVINO (2026.4.1) registers an alternate signal stack, and when its last pipeline
is deleted it frees that memory and leaves it registered; the next signal that Python handles is then a
segmentation fault.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _child(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.support.engine_child", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def generate(weights: Path, tokens: int) -> tuple[list[int], list[int], list[float]]:
    """Prompt, new ids and their log probabilities."""
    prompt, ids, log_probs = json.loads(_child("generate", str(weights), str(tokens)).splitlines()[-1])
    return prompt, ids, log_probs


def write_ir(gguf: Path) -> None:
    """Writes the OpenVINO IR of a GGUF beside it, by OpenVINO GenAI's own conversion."""
    _child("ir", str(gguf))


def _generate(weights: Path, tokens: int) -> None:
    from tests.support.engine_jobs import job, limits

    from trtbuild.serve.local.tensorrtllm.engine import Engine
    from trtbuild.serve.local.tensorrtllm.settings import Settings
    from trtbuild.serve.local.tensorrtllm.worker import make_pipeline

    bounds = limits()
    engine = Engine(make_pipeline(Settings(weights, bounds, 0.1, 0, False)), bounds)
    request = job(1, 6, tokens, log_probs=True)
    events = engine.submit(request)
    while engine.busy:
        events += engine.step()
    ids = [token for event in events for token in event.beams[0]]
    log_probs = [value for event in events for value in (event.log_probs or [[]])[0]]
    print(json.dumps([request.prompt.tolist(), ids, log_probs]))


def _write_ir(gguf: Path) -> None:
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = 4
    openvino_genai.ContinuousBatchingPipeline(str(gguf), scheduler, "CPU", {"enable_save_ov_model": True})


if __name__ == "__main__":
    if sys.argv[1] == "generate":
        _generate(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        _write_ir(Path(sys.argv[2]))
