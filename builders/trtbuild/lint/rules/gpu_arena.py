"""An ONNX model grows beside an LLM.

onnxruntime's arena on the GPU doubles when it is full and never shrinks (server issue 7594); the LLM's KV
cache holds what was free at its start, so the first large picture runs out of memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_llm

SEVERITY = "warning"


def check(repository: LintRepository) -> Iterator[Found]:
    """onnxruntime models on a GPU, in repositories with an LLM."""
    if not any(is_llm(model) for model in repository.readable):
        return
    for model in repository.readable:
        if model.backend != "onnxruntime" or model.config is None:
            continue
        kind = model.config.get("instance_group.kind")
        if kind is not None and kind.text == "KIND_CPU":
            continue
        if "gpu_mem_limit" not in model.parameters:
            yield Found(
                model.at(kind or model.config.get("backend") or model.config.get("platform")),
                "onnxruntime without gpu_mem_limit on the GPU of an LLM",
                "its arena grows by doubling and gives nothing back; what is free belongs to the KV cache",
                'set parameters gpu_mem_limit (bytes) and arena_extend_strategy "1"',
            )
