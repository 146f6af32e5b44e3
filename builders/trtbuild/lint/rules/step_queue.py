"""A step of an ensemble limits its queue, in a container without the fix.

When the queue of an inner step is full, the ensemble's request is never answered (core pull requests 466
and 470, fixed in February 2026). Engines are left out: their requests leave Triton's queue at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.catalog.versions import release_key
from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_engine
from trtbuild.lint.rules.decoupled_disagreement import step_names

SEVERITY = "warning"
_FIXED = "26.03"
_FIELD = "dynamic_batching.default_queue_policy.max_queue_size"


def check(repository: LintRepository) -> Iterator[Found]:
    """Steps with max_queue_size, where the container is known to be older."""
    known = repository.known
    if (
        known is None
        or known.container is None
        or release_key(known.container.release) >= release_key(_FIXED)
    ):
        return
    for ensemble in repository.readable:
        for name in step_names(ensemble) if ensemble.is_ensemble else ():
            step = repository.models.get(name)
            size = step.config.get(_FIELD) if step is not None and step.config is not None else None
            if step is not None and size is not None and size.is_on and not is_engine(step):
                yield Found(
                    step.at(size),
                    f"max_queue_size is {size.text} in {name}, a step of {ensemble.name}",
                    f"in container {known.container.release} a request that finds the queue full "
                    "is never answered",
                    f"set it to 0, or use {_FIXED} or newer; give clients a deadline",
                )
