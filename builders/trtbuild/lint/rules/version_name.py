"""A folder beside the versions that looks like one and is ignored.

`v2`, `1.0`, `01`, `latest` or `.ipynb_checkpoints`: Triton reads only whole numbers without a leading zero,
so the version in it is never served.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "warning"
_LOOKS = re.compile(r"v\d.*|\d.*|version.*|latest|\.ipynb_checkpoints", re.IGNORECASE)


def check(repository: LintRepository) -> Iterator[Found]:
    """Names that are no version numbers, where there is a version, too."""
    for model in repository.readable:
        numbers = model.numbered
        for name in model.versions if numbers else ():
            if name not in numbers and _LOOKS.fullmatch(name):
                yield Found(
                    model.at(None),
                    f"the folder {name!r} beside {', '.join(numbers)} is no version",
                    "Triton takes only whole numbers without a leading zero, and ignores it",
                    "rename it to a number, or remove it",
                )
