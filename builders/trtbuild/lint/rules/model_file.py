"""The model's folder lacks a file that Triton or the backend loads.

Looked at only where the folder holds other files: one that is empty, or holds hidden files and a README,
waits for a build. `default_model_filename` and `cc_model_filenames` are respected; a backend of one's own
may mean anything by them. An output's `label_filename`, and an `EXECUTION_ENV_PATH`
below `$$TRITON_MODEL_DIRECTORY`, lie in the model's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_FILES = {
    "python": ("model.py",),
    "onnxruntime": ("model.onnx",),
    "tensorrt": ("model.plan",),
    "pytorch": ("model.pt", "model.py", "model.pt2"),
    "openvino": ("model.xml", "model.onnx", "model.pb", "model.pdmodel", "model.tflite"),
    "dali": ("model.dali", "dali.py", "model.py"),
    "vllm": ("model.json",),
}


def check(repository: LintRepository) -> Iterator[Found]:
    """Version folders with files, but without the backend's."""
    for model in repository.readable:
        yield from _labels(model)
        yield from _environment(model)
        wanted = _wanted(model)
        for version in model.numbered if wanted else ():
            try:
                names = {
                    entry.name for entry in (model.path / version).iterdir() if not _is_placeholder(entry)
                }
            except OSError:
                continue
            if names and not names & set(wanted):
                yield Found(
                    model.at(model.field("backend")),
                    f"{model.name}/{version} has no {' or '.join(wanted)}; it holds "
                    f"{', '.join(sorted(names)[:5])}",
                    f"the backend {model.backend} loads that file, and fails without it",
                    f"name the file {wanted[0]}, or set default_model_filename",
                )


def _labels(model: ModelFolder) -> Iterator[Found]:
    for output in model.all("output"):
        file = output.message.get("label_filename") if output.message else None
        if (
            file is not None
            and file.text
            and "${" not in file.text
            and not (model.path / file.text).is_file()
        ):
            yield Found(
                model.at(file),
                f"{model.name}/{file.text} is missing",
                "Triton reads the labels when the model loads, and does not load it without them",
                "put the file into the model's folder, or remove label_filename",
            )


def _environment(model: ModelFolder) -> Iterator[Found]:
    parameter = model.parameters.get("EXECUTION_ENV_PATH")
    place, _, path = parameter.value.partition("/") if parameter is not None else ("", "", "")
    if (
        parameter is not None
        and place == "$$TRITON_MODEL_DIRECTORY"
        and model.backend == "python"
        and not (model.path / path).exists()
    ):
        yield Found(
            model.at(parameter.place),
            f"{model.name}/{path} is missing",
            "the Python backend unpacks the environment when the model loads, and does not load it without",
            "put the file there, or remove EXECUTION_ENV_PATH",
        )


def _wanted(model: ModelFolder) -> tuple[str, ...]:
    if model.all("cc_model_filenames") or model.all("model_repository_agents"):
        return ()
    own = model.text("default_model_filename")
    known = _FILES.get(model.backend, ())
    return (own,) if own and known else known


def _is_placeholder(path: Path) -> bool:
    return path.name.startswith(".") or path.name.lower().startswith("readme")
