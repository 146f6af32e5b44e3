"""A value of another type than the key takes.

A quoted number, a word where an enum belongs, a decimal where a whole number belongs, a number out of
range: Triton's parser refuses the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.misfit import misfits_of
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Values that do not fit their field."""
    yield from misfits_of(
        repository, "wrong-type", "Triton's parser refuses the file, and the model does not load"
    )
