"""A warm-up that cannot work.

Triton refuses warm-ups of ensembles, samples that lack an input or give it another type or shape, free
dimensions, and batches above max_batch_size, and cannot find sample files outside `MODEL/warmup/`. A model
that calls others is warmed up before those are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder, Tensor
from trtbuild.lint.pbtxt import Field, Message
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_bls
from trtbuild.lint.samples import short_file

SEVERITY = "error"
_WHY = "Triton refuses the sample, and the model does not load"


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
            _WHY,
            f"write at most {max(largest, 1)}",
        )
    if size is None or size.number == 0:
        return  # Triton leaves such a sample out
    declared = {tensor.name: tensor for tensor in model.tensors("input")}
    given = {
        key.text: item
        for item in message.all("inputs")
        if item.message is not None and (key := item.message.get("key")) is not None
    }
    missing = [name for name, tensor in declared.items() if not tensor.optional and name not in given]
    if missing:
        yield Found(
            model.at(entry),
            f"the warm-up gives no {', '.join(missing[:6])}",
            _WHY,
            "give a value for every input that is not optional",
        )
    for name, item in given.items():
        key = item.message.get("key") if item.message else None
        if declared and name not in declared and name not in _other_inputs(model):
            yield Found(
                model.at(key),
                f"the warm-up gives {name!r}, which is no input",
                "the backend gets a tensor that it does not know" if not missing else _WHY,
                f"the inputs are {', '.join(sorted(declared)[:6])}",
                severity=None if missing else "warning",
            )
        value = item.message.get("value") if item.message else None
        if value is not None and value.message is not None:
            yield from _value(model, value, value.message, declared.get(name))


def _other_inputs(model: ModelFolder) -> set[str]:
    """Tensors that Triton itself hands to the model beside its inputs: a sample may give those."""
    found = set()
    for path, item in model.config.walk() if model.config else ():
        if path in (
            "sequence_batching.control_input.name",
            "sequence_batching.state.input_name",
            "batch_input.target_name",
        ):
            found.add(item.text)
    return found


def _value(model: ModelFolder, entry: Field, value: Message, declared: Tensor | None) -> Iterator[Found]:
    dtype, dims = value.get("data_type"), [item.number for item in value.all("dims")]
    file = value.get("input_data_file")
    if file is None and value.get("zero_data") is None and value.get("random_data") is None:
        yield Found(model.at(entry), "the warm-up says no value", _WHY, "write zero_data: true")
    elif file is not None and (problem := short_file(model, "warmup", file, dtype, dims)) is not None:
        yield problem
    if -1 in dims:
        yield Found(
            model.at(value.get("dims")), f"the warm-up has dims {dims}", _WHY, "write a number for each -1"
        )
        return
    if declared is None or None in dims or not declared.dims:
        return
    given = dtype.text if dtype is not None else "no data_type"
    if declared.dtype and "${" not in declared.dtype and given != declared.dtype:
        yield Found(
            model.at(dtype or entry),
            f"the warm-up gives {declared.name} as {given}, and the input is {declared.dtype}",
            _WHY,
            f"write {declared.dtype}",
        )
    if len(dims) != len(declared.dims) or any(
        own not in (-1, dim) for dim, own in zip(dims, declared.dims, strict=True)
    ):
        yield Found(
            model.at(value.get("dims") or entry),
            f"the warm-up gives {declared.name} with dims {dims}, and the input has {list(declared.dims)}",
            _WHY,
            "write the input's dims, with a number for each -1 and without the batch",
        )
