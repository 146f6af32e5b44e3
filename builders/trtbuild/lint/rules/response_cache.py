"""A response cache where none is possible.

Triton caches neither decoupled models nor sequences, and an ensemble only if it is no part of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.rules.decoupled_disagreement import step_names

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """response_cache of all models."""
    for model in repository.readable:
        cache = model.field("response_cache.enable")
        if cache is None or cache.text.lower() not in ("true", "t", "1"):
            continue
        steps = [repository.models[name] for name in step_names(model) if name in repository.models]
        streaming = model.decoupled or any(step.decoupled for step in steps)
        if streaming or model.all("sequence_batching"):
            yield Found(
                model.at(cache),
                "response_cache with " + ("a decoupled model" if streaming else "sequence batching"),
                "Triton caches single answers to single requests only, and refuses the setting",
                "remove response_cache",
            )
