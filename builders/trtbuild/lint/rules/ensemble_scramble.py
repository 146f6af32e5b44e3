"""A step behind a streaming engine has more than one instance.

The responses of one stream go to whichever instance is free and overtake each other: text comes out in the
wrong order (2 of 96 streams with four instances; tensorrtllm_backend issue 614).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.rules.decoupled_disagreement import step_names

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Steps after the first decoupled one."""
    told = set()
    for ensemble in repository.readable:
        streaming = None
        for name in step_names(ensemble) if ensemble.is_ensemble else ():
            step = repository.models.get(name)
            if step is None or step.config is None:
                continue
            if streaming is not None and step.instances > 1 and name not in told:
                told.add(name)
                count = step.config.get("instance_group.count")
                yield Found(
                    step.at(count),
                    f"{name} has {step.instances} instances and follows the decoupled {streaming} "
                    f"in {ensemble.name}",
                    "responses of one stream overtake each other, and its text arrives in the wrong order",
                    "one instance, or decoupled: false in the engine",
                )
            streaming = streaming or (name if step.decoupled else None)
