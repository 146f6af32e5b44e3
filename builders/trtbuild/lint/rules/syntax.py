"""The config is not protobuf text format.

Triton stops at the first such place and does not load the model; one finding is made for a file, because
what follows a broken place means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Configs that do not parse."""
    for model in repository.models.values():
        if model.problem is not None and model.problem.rule == "syntax":
            yield model.problem.found
