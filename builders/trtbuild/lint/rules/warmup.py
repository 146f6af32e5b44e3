"""A warm-up that cannot work.

Triton refuses warm-ups of ensembles, unknown inputs and batches above max_batch_size, and cannot find sample
files outside `MODEL/warmup/`. A model that calls others is warmed up before those are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Field
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_bls

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """model_warmup of all models."""
    for model in repository.readable:
        for entry in model.all("model_warmup"):
            if model.is_ensemble:
                yield Found(
                    model.at(entry),
                    "model_warmup of an ensemble",
                    "Triton does not warm up ensembles, and refuses the setting",
                    "warm up the models of its steps",
                )
            elif is_bls(model) or "engine_model" in model.parameters:
                yield Found(
                    model.at(entry),
                    f"model_warmup of {model.name}, which calls other models",
                    "warm-up runs while it loads, before the models that it calls are ready, and fails",
                    "warm up the engine; send this model a request after the server is ready",
                )
            elif entry.message is not None:
                yield from _sample(model, entry)


def _sample(model: ModelFolder, entry: Field) -> Iterator[Found]:
    message = entry.message
    if message is None:
        return
    size, largest = message.get("batch_size"), model.number("max_batch_size")
    open_ended = model.is_unfilled("max_batch_size")
    if size is not None and size.number is not None and not open_ended and size.number > max(largest, 1):
        yield Found(
            model.at(size),
            f"batch_size {size.text} with max_batch_size {largest}",
            "Triton refuses the sample, and the model does not load",
            f"write at most {max(largest, 1)}",
        )
    declared = {tensor.name for tensor in model.tensors("input")}
    for item in message.all("inputs"):
        key = item.message.get("key") if item.message else None
        file = item.message.get("value.input_data_file") if item.message else None
        if key is not None and declared and key.text not in declared:
            yield Found(
                model.at(key),
                f"the warm-up gives {key.text!r}, which is no input",
                "Triton refuses the sample, and the model does not load",
                f"the inputs are {', '.join(sorted(declared)[:6])}",
            )
        if file is not None and not (model.path / "warmup" / file.text).exists():
            yield Found(
                model.at(file),
                f"warmup/{file.text} is missing",
                "Triton reads samples from the model's warmup folder, and the model does not load",
                f"put the file into {model.name}/warmup/",
            )
