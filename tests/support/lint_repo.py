"""Repositories for the linter's tests: written by hand, and of the shape of NVIDIA's templates, filled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtbuild.lint.findings import LintFinding
from trtbuild.lint.run import lint

PYTHON_MODEL = "class TritonPythonModel: ...\n"
FACTS = Path(__file__).parents[1] / "golden" / "nvidia"

# What a person fills the placeholders for types with.
_SETTINGS = {
    "logits_datatype": "FP32",
    "encoder_input_features_data_type": "FP16",
    "prompt_embedding_table_data_type": "FP16",
}
# Values for the parameters that are commonly filled; all others are left empty.
_VALUES = {
    "max_beam_width": "1",
    "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
    "gpt_model_type": "inflight_fused_batching",
    "gpt_model_path": "/engines/llama/1-gpu",
    "max_tokens_in_paged_kv_cache": "20480",
    "batch_scheduler_policy": "max_utilization",
    "kv_cache_free_gpu_mem_fraction": "0.85",
    "exclude_input_in_output": "True",
    "enable_kv_cache_reuse": "False",
    "enable_chunked_context": "False",
    "gpu_device_ids": "0",
    "executor_worker_path": "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
    "tokenizer_dir": "/models/llama",
    "add_special_tokens": "False",
    "skip_special_tokens": "True",
    "accumulate_tokens": "True",
    "tensorrt_llm_model_name": "tensorrt_llm",
}


def parameter(key: str, value: str) -> str:
    return f'parameters: {{\n  key: "{key}"\n  value: {{\n    string_value: "{value}"\n  }}\n}}\n'


def write(repo: Path, name: str, text: str | bytes, files: Mapping[str, str] | None = None) -> Path:
    """A model folder with a config and, below version 1, files (by default none)."""
    (repo / name / "1").mkdir(parents=True, exist_ok=True)
    data = text if isinstance(text, bytes) else text.encode()
    (repo / name / "config.pbtxt").write_bytes(data)
    for path, content in (files or {}).items():
        target = repo / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return repo / name / "config.pbtxt"


def found(repo: Path, **options: Any) -> list[tuple[str, str, int]]:
    """(rule, file, line) of every finding."""
    return [(item.rule, item.place.file, item.place.line) for item in lint(repo, **options)]


def only(repo: Path, **options: Any) -> LintFinding:
    """The one finding of a repository."""
    findings = lint(repo, **options)
    assert len(findings) == 1, [(item.rule, str(item.place), item.found) for item in findings]
    return findings[0]


def line_of(path: Path, part: str) -> int:
    """The first line of a file that holds ``part``, from 1."""
    return next(n for n, text in enumerate(path.read_text().splitlines(), 1) if part in text)


def nvidia(
    repo: Path,
    version: str,
    *,
    values: Mapping[str, str] | None = None,
    batch: int = 8,
    bls: int = 8,
    post: int = 1,
    decoupled: str = "true",
) -> Path:
    """NVIDIA's five models of a version, filled: tensors and keys from the extracted facts."""
    facts = json.loads((FACTS / f"{version}.json").read_text())["models"]
    chosen = {**_VALUES, **(values or {})}
    counts = {"preprocessing": 2, "postprocessing": post, "tensorrt_llm_bls": bls}
    for model, row in facts.items():
        lines = [f'name: "{model}"']
        if model == "ensemble":
            lines.append('platform: "ensemble"')
        else:
            lines.append(f'backend: "{"tensorrtllm" if model == "tensorrt_llm" else "python"}"')
        lines.append(f"max_batch_size: {batch}")
        if model in ("tensorrt_llm", "tensorrt_llm_bls"):
            lines += ["model_transaction_policy {", f"  decoupled: {decoupled}", "}"]
        if model == "tensorrt_llm":
            lines += [
                "dynamic_batching {",
                f"  preferred_batch_size: [ {batch} ]",
                "  max_queue_delay_microseconds: 0",
                "  default_queue_policy: { max_queue_size: 0 }",
                "}",
            ]
        for side in ("input", "output"):
            lines += [f"{side} [", ",\n".join(_tensor(item) for item in row[f"{side}s"]), "]"]
        if model != "ensemble":
            lines += [
                "instance_group [",
                "  {",
                f"    count: {counts.get(model, 1)}",
                "    kind : KIND_CPU",
                "  }",
                "]",
            ]
        lines += [parameter(key, chosen.get(key, "")).rstrip() for key in row["parameters"]]
        if "steps" in row:
            lines += [
                "ensemble_scheduling {",
                "  step [",
                ",\n".join(_step(step) for step in row["steps"]),
                "  ]",
                "}",
            ]
        write(repo, model, "\n".join(lines) + "\n")
    return repo


def _tensor(text: str) -> str:
    name, dtype, rest = text.split(" ", 2)
    dims, _, flags = rest.partition("]")
    lines = [
        "  {",
        f'    name: "{name}"',
        f"    data_type: TYPE_{_SETTINGS.get(dtype, dtype)}",
        f"    dims: {dims}]",
    ]
    if "reshape" in flags:
        lines.append("    reshape: { shape: [ ] }")
    if "optional" in flags:
        lines.append("    optional: true")
    if "ragged" in flags:
        lines.append("    allow_ragged_batch: true")
    return "\n".join([*lines, "  }"])


def _step(step: dict[str, Any]) -> str:
    lines = ["    {", f'      model_name: "{step["model"]}"', "      model_version: -1"]
    for side in ("inputs", "outputs"):
        for key, value in step[side].items():
            lines += [
                f"      {side[:-1]}_map {{",
                f'        key: "{key}"',
                f'        value: "{value}"',
                "      }",
            ]
    return "\n".join([*lines, "    }"])
