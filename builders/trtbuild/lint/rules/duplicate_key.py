"""A key twice that can be set once only, or two keys of which only one can be set.

Triton's parser refuses the file: "should not have multiple" or "is specified along with".
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.misfit import misfits_of
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Doubled fields."""
    yield from misfits_of(
        repository, "duplicate-key", "Triton's parser refuses the file, and the model does not load"
    )
