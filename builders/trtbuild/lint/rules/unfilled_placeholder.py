"""A template's ${…} was never filled.

Where a number, an enum or a boolean belongs, the file does not parse: "Expected integer or identifier, got:
$" (server issue 8592, tensorrtllm_backend issue 501). All five files of NVIDIA's repository have such
places, and a new release may bring new ones. Inside a string, the backend logs a warning and takes its
default: an error where there is none, and else told as information, since NVIDIA's own commands leave many.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_engine, is_postprocessing, is_preprocessing
from trtbuild.lint.schema import Misfit

SEVERITY = "error"
_NAMED = 8  # parameters in one finding


def check(repository: LintRepository) -> Iterator[Found]:
    """One finding a file for each placeholder in typed fields, then one a file for those in strings."""
    for model in repository.readable:
        by_text: dict[str, list[Misfit]] = {}
        for misfit in model.misfits:
            if misfit.rule == "unfilled-placeholder":
                by_text.setdefault(misfit.field.text, []).append(misfit)
        for first, *others in by_text.values():
            yield _typed(model, first, others)
        yield from _strings(model)


def _typed(model: ModelFolder, first: Misfit, others: list[Misfit]) -> Found:
    lines = ", ".join(str(other.field.line) for other in others)
    return Found(
        model.at(first.field),
        first.message + (f"; also on line{'s' if len(others) > 1 else ''} {lines}" if others else ""),
        "Triton stops with `Expected integer or identifier, got: $`; fill_template.py leaves "
        "unset keys in place",
        first.remedy,
    )


def _strings(model: ModelFolder) -> Iterator[Found]:
    needed: set[str] = set()
    if is_engine(model):
        needed = {"gpt_model_type", "gpt_model_path"}
    elif is_preprocessing(model) or is_postprocessing(model):
        needed = {"tokenizer_dir"}
    left = [item for item in model.parameters.values() if "${" in item.value]
    for item in left:
        if item.key in needed:
            yield Found(
                model.at(item.place),
                f"parameter {item.key} is still {item.value}",
                "the model cannot load without it",
                f"put the value in place of {item.value}",
            )
    optional = [item for item in left if item.key not in needed]
    if optional:
        first = min(optional, key=lambda item: item.place.line)
        names = ", ".join(item.key for item in optional[:_NAMED])
        names += f" and {len(optional) - _NAMED} more" if len(optional) > _NAMED else ""
        yield Found(
            model.at(first.place),
            f"{len(optional)} parameter{'s' if len(optional) > 1 else ''} still "
            f"{'hold' if len(optional) > 1 else 'holds'} a template's "
            f"placeholder: {names}",
            "the backend cannot read such a value, logs a warning and takes its default",
            'fill them, or leave them empty (string_value: "") to say that the default is wanted',
            severity="info",
        )
