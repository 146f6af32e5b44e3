"""A path that exists on one machine only.

A home folder, a drive letter or a temporary folder in a parameter: the repository does not start anywhere
else, nor in a container that does not mount the same place. A cache in a temporary folder is made anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "warning"
_LOCAL = re.compile(r"(?:/home/[^/]+/|/Users/[^/]+/|[A-Za-z]:[\\/]|\\\\|~/|/tmp/|/var/tmp/|/mnt/[a-z]/)")
_SETTING = re.compile(r"""^[ \t-]*["']?[A-Za-z_]+["']?[ \t]*:[ \t]*["']?(?P<path>[^"'\s#]+)""", re.MULTILINE)


def check(repository: LintRepository) -> Iterator[Found]:
    """Parameters of configs, and settings of YAML and JSON files in version folders."""
    for model in repository.readable:
        for key, parameter in model.parameters.items():
            if _is_local(parameter.value) and not ("cache" in key.lower() and "/tmp/" in parameter.value):
                yield Found(
                    model.at(parameter.place), f"parameter {key} is {parameter.value!r}", _WHY, _REMEDY
                )
    for file in repository.text_files:
        if file.suffix in (".yaml", ".yml", ".json") and file.file.count("/") == 2:
            for match in _SETTING.finditer(file.text):
                if _is_local(match["path"]):
                    yield Found(
                        file.place(match.start("path")), f"{match['path']!r} is set here", _WHY, _REMEDY
                    )


_WHY = "the path belongs to one person's or one machine's disk, and a container does not see it"
_REMEDY = "put the files into the model's folder, or mount them at a fixed place and name that"


def _is_local(path: str) -> bool:
    """Home folders and drives always; a temporary folder where it is gone already."""
    match = _LOCAL.match(path)
    return match is not None and not ("tmp" in match.group() and os.path.exists(path))  # noqa: PTH110
