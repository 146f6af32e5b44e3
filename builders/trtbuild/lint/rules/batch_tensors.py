"""`batch_input` and `batch_output` that name what is not there.

Each kind takes one source input; sources are inputs and targets outputs of the model, a target once (core,
model_config_utils.cc, `ValidateBatchIO`).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Field, Message
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_WHY = "Triton checks it when the model loads, and refuses the model"
_DTYPES = ("TYPE_INT32", "TYPE_FP32")


def check(repository: LintRepository) -> Iterator[Found]:
    """Both kinds of entries of all models; names only where the config declares the tensors itself."""
    for model in repository.readable:
        for kind in ("batch_input", "batch_output"):
            for entry in model.all(kind):
                if entry.message is not None:
                    yield from _sources(model, entry, entry.message)
                if entry.message is not None and kind == "batch_output":
                    yield from _targets(model, entry.message)
                elif entry.message is not None:
                    yield from _dtype(model, entry, entry.message)


def _sources(model: ModelFolder, entry: Field, message: Message) -> Iterator[Found]:
    sources = message.all("source_input")
    if len(sources) != 1:
        yield Found(
            model.at(sources[1] if sources else entry),
            f"{entry.name} has {len(sources) or 'no'} source_input{'s' if len(sources) > 1 else ''}",
            f"every kind takes one: {_WHY}",
            'write source_input: "INPUT"' if not sources else f"write an entry of {entry.name} for each",
        )
    yield from _unknown(model, sources, "input")


def _targets(model: ModelFolder, message: Message) -> Iterator[Found]:
    targets = message.all("target_name")
    yield from _unknown(model, targets, "output")
    for index, target in enumerate(targets):
        if target.text in [earlier.text for earlier in targets[:index]]:
            yield Found(
                model.at(target), f"target_name {target.text!r} is given twice", _WHY, "remove one of the two"
            )


def _unknown(model: ModelFolder, named: list[Field], side: str) -> Iterator[Found]:
    declared = {tensor.name for tensor in model.tensors(side)}
    for item in named:
        if declared and item.text not in declared:
            yield Found(
                model.at(item),
                f"{item.name} {item.text!r} is no {side} of {model.name}",
                _WHY,
                f"its {side}s are {', '.join(sorted(declared)[:6])}",
            )


def _dtype(model: ModelFolder, entry: Field, message: Message) -> Iterator[Found]:
    dtype = message.get("data_type")
    if dtype is None or (dtype.text.startswith("TYPE_") and dtype.text not in _DTYPES):
        yield Found(
            model.at(dtype or entry),
            f"batch_input has {'no data_type' if dtype is None else f'data_type {dtype.text}'}",
            f"counts and shapes are whole numbers or floats of 32 bits: {_WHY}",
            f"write {' or '.join(_DTYPES)}",
        )
