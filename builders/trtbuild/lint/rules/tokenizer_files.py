"""A tokenizer or chat template is missing.

Without tokenizer files a text model does not load; without a chat template a chat is answered as plain
text, or the answer is empty. Looked at where the folder is on this machine. Pre- and post-processing must
name the same tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trtbuild.lint.engines import locate
from trtbuild.lint.findings import Found, Place
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_postprocessing, is_preprocessing
from trtbuild.lint.rules.decoupled_disagreement import step_names

SEVERITY = "error"
_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "tokenizer_config.json",
    "*.tiktoken",
    "spiece.model",
)


def check(repository: LintRepository) -> Iterator[Found]:
    """NVIDIA's steps, and this project's fronts."""
    for model in repository.readable:
        parameter = model.parameters.get("tokenizer_dir")
        if is_preprocessing(model) or is_postprocessing(model):
            if parameter is not None and parameter.is_set:
                folder = locate(repository.root, parameter.value)
                if folder is not None and not _has(folder, *_TOKENIZERS):
                    yield Found(
                        model.at(parameter.place),
                        f"tokenizer_dir is {parameter.value!r}, which has no tokenizer",
                        "the model loads it first, and stops",
                        "copy tokenizer.json and tokenizer_config.json of the model there",
                    )
        elif "engine_model" in model.parameters and "text_input" in {t.name for t in model.tensors("input")}:
            yield from _front(repository, model)
    for ensemble in repository.readable:
        if ensemble.is_ensemble:
            yield from _same(repository, ensemble)


def _front(repository: LintRepository, model: ModelFolder) -> Iterator[Found]:
    for version in model.numbered:
        folder = (
            model.path / version / model.parameters["tokenizer_dir"].value
            if "tokenizer_dir" in model.parameters
            else model.path / version / "tokenizer"
        )
        built = not repository.is_ours or folder.is_dir()
        if built and not (folder / "tokenizer.json").is_file():
            yield Found(
                Place(f"{model.name}/{version}"),
                "there is no tokenizer/tokenizer.json",
                "the front turns text into tokens with it, and does not load",
                "copy the model's tokenizer files there",
            )
        elif built and not _has_template(folder):
            yield Found(
                Place(f"{model.name}/{version}"),
                "the tokenizer has no chat template",
                "`messages` cannot be turned into a prompt; only `text_input` works",
                "add chat_template.jinja, unless the model is a base model",
                severity="info",
            )


def _same(repository: LintRepository, ensemble: ModelFolder) -> Iterator[Found]:
    first: tuple[str, str] | None = None
    for name in step_names(ensemble):
        step = repository.models.get(name)
        parameter = step.parameters.get("tokenizer_dir") if step is not None else None
        if step is None or parameter is None or not parameter.is_set or step.backend != "python":
            continue
        if first is not None and parameter.value.rstrip("/") != first[1].rstrip("/"):
            yield Found(
                step.at(parameter.place),
                f"tokenizer_dir is {parameter.value!r} here, and {first[1]!r} in {first[0]}",
                "tokens of one tokenizer are read with another, and the text is garbage",
                "name the same folder in both",
            )
        first = first or (name, parameter.value)


def _has(folder: Path, *patterns: str) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)


def _has_template(folder: Path) -> bool:
    if _has(folder, "chat_template*"):
        return True
    try:
        return "chat_template" in (folder / "tokenizer_config.json").read_text(
            encoding="utf-8", errors="replace"
        )
    except OSError:
        return False
