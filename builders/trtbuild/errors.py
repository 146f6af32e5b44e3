"""Expected failures: a message, the ways out, exit code 1, no traceback.

TrtbuildError
├── SpecError        the description of the deployment is wrong
├── CatalogError     an unknown or ambiguous model, GPU, format or version
├── ModelSourceError a model folder, checkpoint or weights file that cannot be used
├── PlanError        the plan cannot be made or does not fit
├── RepositoryError  the output folder, a name, or a generated file is wrong
├── BuildError       a build step failed or its product is missing
├── ServeError       the server cannot start, died, or is not reachable
└── MeasureError     a load, trace or record that cannot be used, or figures that cannot be compared
"""

from __future__ import annotations

import shlex
from pathlib import Path


class TrtbuildError(Exception):
    """Base of every expected failure.

    Args:
        message: what was found and why it cannot work, one or two sentences.
        remedies: what would work, most likely first; printed one a line.
    """

    exit_code = 1

    def __init__(self, message: str, *remedies: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedies = remedies


class SpecError(TrtbuildError):
    """The description of the deployment is wrong."""


class CatalogError(TrtbuildError):
    """An unknown or ambiguous model, GPU, format or version."""


class ModelSourceError(TrtbuildError):
    """A model folder, checkpoint or weights file that cannot be used."""


class PlanError(TrtbuildError):
    """The plan cannot be made or does not fit."""


class RepositoryError(TrtbuildError):
    """The output folder, a name, or a generated file is wrong."""


class BuildError(TrtbuildError):
    """A build step failed or its product is missing."""


class ServeError(TrtbuildError):
    """The server cannot start, died, or is not reachable."""


class MeasureError(TrtbuildError):
    """A load, trace or record that cannot be used, or figures that cannot be compared."""


def in_shell(path: Path | str) -> str:
    """A path as it stands in a command that a remedy tells to type."""
    return shlex.quote(str(path))
