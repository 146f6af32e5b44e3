"""The config cannot be read as text.

A binary file under this name, another encoding than UTF-8, a file without permission, a loop of links, or
megabytes of something else.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Configs that are not readable text."""
    for model in repository.models.values():
        if model.problem is not None and model.problem.rule == "unreadable":
            yield model.problem.found
