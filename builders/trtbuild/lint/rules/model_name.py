"""A folder's name that launch lines or clients cannot take.

The name becomes a word in launch lines (`--load-model`), a part of URLs and a label of metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.repository import LintRepository

SEVERITY = "warning"
_GOOD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def check(repository: LintRepository) -> Iterator[Found]:
    """Names with spaces, separators, control characters, or too long."""
    for name, model in repository.models.items():
        if model.config is None:
            continue  # told already, and one finding is enough
        if _GOOD.fullmatch(name) and ".." not in name:
            continue
        broken = not name.isprintable() or "/" in name or "\\" in name
        yield Found(
            Place(name),
            f"the folder is called {name!r}",
            "a model's name is a word of launch lines, a part of URLs and a label of metrics",
            "use letters, digits, '.', '_' and '-'",
            severity="error" if broken else None,
        )
