"""`runtime` with a path in it.

It is the name of the backend's library (or `model.py`), which Triton looks for in the model's folder, its
version and the backend directory; what leads out of them is refused, so that a config cannot load any library
(core, backend_model.cc, `GetBackendLibraryProperties`).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """runtime of all models."""
    for model in repository.readable:
        runtime = model.field("runtime")
        if runtime is None or "/" not in runtime.text or "${" in runtime.text:
            continue
        if (
            runtime.text.startswith("/")
            or ".." in runtime.text.split("/")
            or not _brought(model, runtime.text)
        ):
            yield Found(
                model.at(runtime),
                f"runtime is {runtime.text!r}",
                "Triton looks for a file of this name in the model's folder and the backend directory, and "
                "refuses a path out of them",
                f'write runtime: "{runtime.text.rsplit("/", 1)[-1]}", and put the file there',
            )


def _brought(model: ModelFolder, path: str) -> bool:
    """Whether the model's folder or one of its versions has the file."""
    return any((model.path / version / path).is_file() for version in ("", *model.versions))
