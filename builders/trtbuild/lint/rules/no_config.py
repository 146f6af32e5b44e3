"""A folder of the repository that is no model.

Triton takes every folder for a model. Without a config.pbtxt it can load only what it can complete itself:
a version folder with an ONNX file, a TensorRT plan, a SavedModel, an OpenVINO file or a Python model, or a
folder that is called NAME.BACKEND.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.model import CONFIG
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_COMPLETED = (
    "model.onnx",
    "model.plan",
    "model.savedmodel",
    "model.py",
    "model.xml",
    "model.json",
    "model.dali",
)


def check(repository: LintRepository) -> Iterator[Found]:
    """Folders without a config that nothing completes."""
    for model in repository.models.values():
        if model.config is not None or model.problem is not None:
            continue
        numbered = model.numbered
        if any((model.path / version / name).exists() for version in numbered for name in _COMPLETED):
            continue
        if (model.path / "configs").is_dir() or (numbered and "." in model.name.strip(".")):
            continue
        what = "no config.pbtxt" if numbered else "neither a config.pbtxt nor a version folder"
        below = next((version for version in numbered if (model.path / version / CONFIG).is_file()), None)
        yield Found(
            Place(model.name),
            f"the folder has {what}",
            "Triton takes every folder of the repository for a model, fails on this one, and "
            "does not become ready",
            f"move {below}/{CONFIG} one folder up"
            if below is not None
            else "add its config.pbtxt, or move the folder out of the repository",
        )
