"""A `model.py` that the Python backend cannot load.

The backend imports the file and takes the class `TritonPythonModel` from it; text that is no Python, and a
file without that class, end the load. Only the text is read here: nothing of it is run.
"""

from __future__ import annotations

import ast
import platform
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_CLASS = "TritonPythonModel"
_OF_NEW_CONTAINERS = (3, 12)  # an older Python here may not know all that theirs does


def check(repository: LintRepository) -> Iterator[Found]:
    """The text of every Python model's file."""
    for model in repository.readable:
        if model.backend != "python":
            continue
        for version in model.numbered:
            path = model.path / version / (model.text("default_model_filename") or "model.py")
            if path.suffix == ".py" and path.is_file():
                yield from _file(path, repository.relative(path))


def _file(path: Path, name: str) -> Iterator[Found]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = (error.lineno or 0) if isinstance(error, SyntaxError) else 0
        yield Found(
            Place(name, line),
            f"Python {platform.python_version()} cannot parse it: "
            f"{error.msg if isinstance(error, SyntaxError) else error}",
            "the Python backend imports the file, and the model does not load",
            "mend the text at this place",
            severity=None if sys.version_info >= _OF_NEW_CONTAINERS else "warning",
        )
        return
    except (OSError, RecursionError, MemoryError):
        return
    if not _gives_the_class(tree):
        yield Found(
            Place(name),
            f"there is no class {_CLASS}",
            "the Python backend looks for the class of this name, and the model does not load",
            f"call the model's class {_CLASS}",
        )


def _gives_the_class(tree: ast.Module) -> bool:
    """Whether the name can come to be: defined, imported, assigned, or set by code that is run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == _CLASS:
            return True
        if isinstance(node, ast.ImportFrom | ast.Import) and any(
            alias.name == "*" or (alias.asname or alias.name) == _CLASS for alias in node.names
        ):
            return True
        if isinstance(node, ast.Name) and node.id in (_CLASS, "exec", "globals"):
            return True
    return False
