"""Whether a step's product is whole, and says what was asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trtbuild.build.commands import Command, Fact
from trtbuild.errors import BuildError


def check_product(folder: Path, command: Command) -> None:
    """Checks files and facts of a product.

    Raises:
        BuildError: what is missing, empty, or another value than was asked for.
    """
    for pattern in command.expects:
        if not any(path.is_file() and path.stat().st_size > 0 for path in folder.glob(pattern)):
            raise BuildError(
                f"{command.step.value} ended without an error, but {folder} has no {pattern} that is not "
                "empty"
            )
    size_bytes = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    if size_bytes < command.least_bytes:
        raise BuildError(
            f"{command.step.value} ended without an error, but {folder} holds {size_bytes} bytes; at least "
            f"{command.least_bytes} were expected, half of the planned weights"
        )
    for fact in command.facts:
        _check_fact(folder, fact)


def is_whole(folder: Path, command: Command) -> bool:
    """Whether ``check_product`` finds nothing."""
    try:
        check_product(folder, command)
    except BuildError:
        return False
    return True


def _check_fact(folder: Path, fact: Fact) -> None:
    path = folder / fact.file
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BuildError(f"{path}: cannot be read as JSON: {error}") from error
    for key in fact.path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if value != fact.value:
        raise BuildError(
            f"{path}: {fact.path} is {value!r}, and {fact.value!r} was asked for: the tool went on without "
            "what it "
            "could not do",
            "its log says why; look for warnings before the end",
        )
