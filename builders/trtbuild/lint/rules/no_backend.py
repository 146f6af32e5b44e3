"""Nothing says which backend a model has.

Without `backend` and `platform`, Triton takes the backend from the file in the version folder (an ONNX file,
a plan, a SavedModel, a TorchScript file or a Python model), from `default_model_filename`, or from a
folder that is called NAME.BACKEND.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_TELLING = ("model.onnx", "model.plan", "model.savedmodel", "model.graphdef", "model.pt", "model.py")
_ELSEWHERE = (
    "backend",
    "platform",
    "default_model_filename",
    "ensemble_scheduling",
    "model_repository_agents",
)


def check(repository: LintRepository) -> Iterator[Found]:
    """Configs that leave it open, where no file closes it."""
    for model in repository.readable:
        if any(model.all(key) for key in _ELSEWHERE) or "." in model.name.strip("."):
            continue
        if any((model.path / version / name).exists() for version in model.numbered for name in _TELLING):
            continue
        yield Found(
            model.at(None),
            "there is neither backend nor platform, and no file in a version folder tells it",
            "Triton does not know what runs the model, and does not load it",
            'write backend: "…"',
        )
