"""NVIDIA's BLS model has fewer instances than the engine has places.

An instance serves one request from its first to its last token, so `bls_instance_count: 1` answers one
user after another while the engine is nearly empty (tensorrtllm_backend issues 257, 416, 535).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_bls, is_engine

SEVERITY = "warning"


def check(repository: LintRepository) -> Iterator[Found]:
    """BLS models against the engine that they call."""
    for model in repository.readable:
        if not is_bls(model) or is_engine(model) or model.config is None:
            continue
        named = model.parameters.get("tensorrt_llm_model_name")
        engine = repository.models.get(named.value if named is not None and named.is_set else "tensorrt_llm")
        places = engine.number("max_batch_size") if engine is not None else 0
        if model.instances < places and not model.is_unfilled("instance_group.count"):
            count = model.config.get("instance_group.count")
            yield Found(
                model.at(count or model.config.get("instance_group")),
                f"{model.instances} instance{'s' if model.instances > 1 else ''} of {model.name} "
                "before an engine with "
                f"max_batch_size {places}",
                f"each instance serves one request at a time: at most {model.instances} run, the others wait",
                f"write count: {places}, or call the ensemble, which does not wait",
            )
