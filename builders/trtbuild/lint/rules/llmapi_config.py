"""model.yaml of an LLM API model contradicts its config, or asks for what is gone.

NVIDIA's template takes `max_batch_size` and `decoupled` from `triton_config` by auto-completion, which many
launch lines turn off; a config.pbtxt that says something else wins. Batches above 0 are not supported, and
`backend: tensorrt` was removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_llmapi

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Models with a model.yaml in a version folder."""
    for model in repository.readable:
        for version in model.versions if is_llmapi(model) else ():
            path = model.path / version / "model.yaml"
            if path.is_file():
                yield from _look(
                    model, f"{model.name}/{version}/model.yaml", path.read_text("utf-8", "replace")
                )


def _look(model: ModelFolder, file: str, text: str) -> Iterator[Found]:
    import yaml

    if "${" in text:
        yield Found(
            Place(file, _line(text, "${")),
            "a placeholder was never filled",
            "the LLM API refuses it",
            "put the value there",
        )
        return
    try:
        settings: Any = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        yield Found(
            Place(file, mark.line + 1 if mark else 0),
            "model.yaml is not YAML",
            "the model does not load",
            "mend the text",
        )
        return
    if not isinstance(settings, dict):
        yield Found(
            Place(file),
            "model.yaml holds no settings",
            "the model does not load",
            "write `model: NAME` and more",
        )
        return
    if settings.get("backend") == "tensorrt":
        yield Found(
            Place(file, _line(text, "backend")),
            "backend is tensorrt",
            "the LLM API lost its compiled flow, and raises ValueError",
            "write pytorch, or serve a compiled engine with the tensorrtllm backend",
        )
    triton = settings.get("triton_config")
    if isinstance(triton, dict):
        yield from _triton(model, file, text, triton)


def _triton(model: ModelFolder, file: str, text: str, triton: dict[str, Any]) -> Iterator[Found]:
    size = triton.get("max_batch_size", 0)
    if size != 0:
        yield Found(
            Place(file, _line(text, "max_batch_size")),
            f"triton_config.max_batch_size is {size}",
            "the template does not support batches, and refuses to load",
            "write 0; the LLM API batches by itself",
        )
    written = model.config.get("model_transaction_policy.decoupled") if model.config else None
    if written is not None and "decoupled" in triton and bool(triton["decoupled"]) != model.decoupled:
        yield Found(
            model.at(written),
            f"decoupled is {str(model.decoupled).lower()} here, and {triton['decoupled']} in {file}",
            "the model answers one way and is declared the other",
            "write the same in both",
        )


def _line(text: str, word: str) -> int:
    return next((number for number, line in enumerate(text.splitlines(), 1) if word in line), 0)
