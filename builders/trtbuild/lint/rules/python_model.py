"""A `model.py` that the Python backend cannot load.

The backend imports the file and takes the class `TritonPythonModel` from it; text that is no Python, a file
without that class, and a method that cannot be called as the backend does end the load. Only the text is read
here: nothing of it is run.
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
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == _CLASS:
            yield from _methods(node, name)
    if not _gives_the_class(tree):
        yield Found(
            Place(name),
            f"there is no class {_CLASS}",
            "the Python backend looks for the class of this name, and the model does not load",
            f"call the model's class {_CLASS}",
        )


def _methods(node: ast.ClassDef, name: str) -> Iterator[Found]:
    """Methods that the backend cannot call: it hands one value to each, and the class makes no instance first
    for auto_complete_config."""
    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name not in (
            "initialize",
            "auto_complete_config",
        ):
            continue
        is_static = any(
            isinstance(item, ast.Name) and item.id == "staticmethod" for item in method.decorator_list
        )
        if len(method.decorator_list) > is_static:
            continue  # a decorator may do anything
        if method.name == "auto_complete_config" and not any(
            isinstance(item, ast.Return | ast.Raise) for item in ast.walk(method)
        ):
            yield Found(
                Place(name, method.lineno),
                "auto_complete_config returns nothing",
                "the backend wants the config back, and the model does not load",
                "end it with return, and the config that it was given",
            )
            continue
        arguments = method.args.posonlyargs + method.args.args
        needed = len(arguments) - len(method.args.defaults)
        takes_more = method.args.vararg is not None
        handed = 2 if method.name == "initialize" and not is_static else 1
        if needed > handed or (len(arguments) < handed and not takes_more):
            yield Found(
                Place(name, method.lineno),
                f"{method.name} takes {', '.join(item.arg for item in arguments) or 'nothing'}",
                "the backend cannot call it so, and the model does not load",
                "write @staticmethod and def auto_complete_config(config)"
                if handed == 1
                else "write def initialize(self, args)",
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
