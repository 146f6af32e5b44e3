"""A folder beside the versions that looks like one and is none.

`v2`, `01`, `latest` or `.ipynb_checkpoints` are ignored, so the version in them is never served. Of `-1`,
` 2`, `2.0` or `2-old` Triton reads the number at the beginning, and then looks for a folder of just that
number (core, model_lifecycle.cc, `VersionsToLoad`): as the newest version it keeps the model from loading. A
number that 64 bits cannot hold ends the whole server (an exception that nothing catches).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository

SEVERITY = "warning"
_LOOKS = re.compile(r"\s*[-+]?v?\d.*|version.*|latest|\.ipynb_checkpoints", re.IGNORECASE)
_DIGITS = re.compile(r"(?!0.)\s*[-+]?(\d+)", re.ASCII)
_LARGEST = (1 << 63) - 1
_NUMBER = re.compile(r"(?!0.)\s*([-+]?\d{1,18})", re.ASCII)


def check(repository: LintRepository) -> Iterator[Found]:
    """Names that are no version numbers, where there is a version, too."""
    for model in repository.readable:
        numbers = model.numbered
        for name in model.versions:
            if (digits := _DIGITS.match(name)) and int(digits[1][:40]) > _LARGEST:
                yield Found(
                    model.at(None),
                    f"the folder {name!r} is a number above {_LARGEST}",
                    "Triton reads a version into 64 bits, and this one ends the server with all its models",
                    "give the version a smaller number",
                    severity="error",
                )
            elif numbers and name not in numbers and looks_like_a_version(name):
                yield _found(model, name, numbers)


def looks_like_a_version(name: str) -> bool:
    """Whether somebody probably meant the folder to be served."""
    return _LOOKS.fullmatch(name) is not None


def _found(model: ModelFolder, name: str, numbers: tuple[str, ...]) -> Found:
    found, remedy = f"the folder {name!r} beside {', '.join(numbers)} is no version", "move it elsewhere"
    read = _NUMBER.match(name)
    if read is None:
        return Found(
            model.at(None), found,
            "Triton takes only whole numbers without a leading zero, and ignores it",
            f"rename it to a number, or {remedy}",
        )  # fmt: skip
    number = int(read[1])
    newest = number > max(map(int, numbers))
    return Found(
        model.at(None), found,
        f"Triton reads version {number} from it, and looks for it in {model.name}/{number}"
        + (": as the newest version it is the one to be loaded, and the model fails" if newest else ""),
        f"rename it to {max(number, max(map(int, numbers)) + 1)}, or {remedy}",
        severity="error" if newest else None,
    )  # fmt: skip
