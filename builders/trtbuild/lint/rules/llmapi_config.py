"""model.yaml of an LLM API model contradicts its config, or asks for what is gone.

NVIDIA's template takes `max_batch_size` and `decoupled` from `triton_config` by auto-completion, which many
launch lines turn off; a config.pbtxt that says something else wins. Batches above 0 are not supported, and
`backend: tensorrt` was removed.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.llmapi import Settings, read_settings
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_llmapi

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Models with a model.yaml in a version folder."""
    for model in repository.readable:
        for settings in read_settings(model) if is_llmapi(model) else ():
            yield from _look(model, settings)


def _look(model: ModelFolder, settings: Settings) -> Iterator[Found]:
    if "${" in settings.text:
        line = settings.text[: settings.text.index("${")].count("\n") + 1
        yield Found(
            Place(settings.file, line),
            "a placeholder was never filled",
            "the LLM API refuses it",
            "put the value there",
        )
        return
    if settings.bad_line is not None:
        yield Found(
            Place(settings.file, settings.bad_line),
            "model.yaml is not YAML",
            "the model does not load",
            "mend the text",
        )
        return
    if settings.values is None:
        yield Found(
            Place(settings.file),
            "model.yaml holds no settings",
            "the model does not load",
            "write `model: NAME` and more",
        )
        return
    if settings.values.get("backend") == "tensorrt":
        yield Found(
            settings.at("backend"),
            "backend is tensorrt",
            "the LLM API lost its compiled flow, and raises ValueError",
            "write pytorch, or serve a compiled engine with the tensorrtllm backend",
        )
    yield from _triton(model, settings)


def _triton(model: ModelFolder, settings: Settings) -> Iterator[Found]:
    triton = settings.section("triton_config")
    size = triton.get("max_batch_size", 0)
    if size != 0:
        begin = settings.text.index("triton_config")
        line = settings.text[: settings.text.index("max_batch_size", begin)].count("\n") + 1
        yield Found(
            Place(settings.file, line),
            f"triton_config.max_batch_size is {size}",
            "the template does not support batches, and refuses to load",
            "write 0; the LLM API batches by itself",
        )
    written = model.field("model_transaction_policy.decoupled")
    if written is not None and "decoupled" in triton and bool(triton["decoupled"]) != model.decoupled:
        yield Found(
            model.at(written),
            f"decoupled is {str(model.decoupled).lower()} here, and {triton['decoupled']} in {settings.file}",
            "the model answers one way and is declared the other",
            "write the same in both",
        )
