"""A key that Triton's model configuration does not have.

Triton's parser refuses the whole file. Often a typo, or a key at the wrong level: `rate_limiter` belongs
inside `instance_group`, `gpus` too.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.misfit import misfits_of
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Keys outside `inference.ModelConfig`."""
    yield from misfits_of(
        repository, "unknown-key", "Triton's parser refuses the file, and the model does not load"
    )
