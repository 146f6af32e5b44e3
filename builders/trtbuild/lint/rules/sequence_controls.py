"""Control tensors of a sequence batcher that Triton refuses.

Start, end, ready and correlation id stand once each, every control tensor has a name of its own, and the
first three say their two values in one type (core, model_config_utils.cc,
`GetBooleanSequenceControlProperties`).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Field, Message
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_WHY = "Triton refuses it, and the model does not load"
_KINDS = (
    "CONTROL_SEQUENCE_START",
    "CONTROL_SEQUENCE_READY",
    "CONTROL_SEQUENCE_END",
    "CONTROL_SEQUENCE_CORRID",
)
_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_IDS = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def check(repository: LintRepository) -> Iterator[Found]:
    """sequence_batching of all models."""
    for model in repository.readable:
        batching = model.field("sequence_batching")
        inputs = batching.message.all("control_input") if batching and batching.message else []
        yield from _names(model, inputs)
        seen: dict[str, Field] = {}
        for entry in inputs:
            for control in entry.message.all("control") if entry.message else ():
                if control.message is not None:
                    yield from _control(model, control, control.message, seen)


def _names(model: ModelFolder, inputs: list[Field]) -> Iterator[Found]:
    seen: dict[str, Field] = {}
    for entry in inputs:
        name = entry.message.get("name") if entry.message else None
        if name is None or not name.text:
            yield Found(
                model.at(name or entry),
                "a control_input without a name",
                _WHY,
                "name the tensor that carries it",
            )
        elif name.text in seen:
            yield Found(
                model.at(name),
                f"control_input {name.text!r} is already there on line {seen[name.text].line}",
                _WHY,
                "give each control a tensor of its own",
            )
        else:
            seen[name.text] = name


def _control(model: ModelFolder, control: Field, message: Message, seen: dict[str, Field]) -> Iterator[Found]:
    field = message.get("kind")
    kind = _KINDS[0] if field is None else field.text  # the first is protobuf's default
    if kind in ("0", "1", "2", "3"):
        kind = _KINDS[int(kind)]
    if kind not in _KINDS:
        return  # another rule's: not one of the names
    if kind in seen:
        yield Found(
            model.at(field or control),
            f"{kind} is already given on line {seen[kind].line}",
            _WHY,
            "keep one of the two",
        )
    seen.setdefault(kind, field or control)
    given = [name for name in _VALUES if message.all(name)]
    if kind == _KINDS[3]:
        yield from _id(model, control, message, given)
    else:
        yield from _values(model, control, message, kind, given)


def _id(model: ModelFolder, control: Field, message: Message, given: list[str]) -> Iterator[Found]:
    dtype = message.get("data_type")
    if given:
        yield Found(
            model.at(message.get(given[0])),
            f"{given[0]} of {_KINDS[3]}",
            f"the correlation id has no two values: {_WHY}",
            "write data_type: TYPE_UINT64 instead",
        )
    elif dtype is None or (dtype.text.startswith("TYPE_") and dtype.text not in _IDS):
        yield Found(
            model.at(dtype or control),
            f"{_KINDS[3]} has {'no data_type' if dtype is None else f'data_type {dtype.text}'}",
            _WHY,
            f"write one of {', '.join(_IDS)}",
        )


def _values(
    model: ModelFolder, control: Field, message: Message, kind: str, given: list[str]
) -> Iterator[Found]:
    if not given:
        yield Found(
            model.at(control),
            f"{kind} has no values",
            f"the tensor says no and yes by two values: {_WHY}",
            "write fp32_false_true: [ 0, 1 ], or int32_false_true, or bool_false_true",
        )
    elif len(given) > 1:
        yield Found(
            model.at(message.get(given[1])), f"{kind} has {' and '.join(given)}", _WHY, "keep one of them"
        )
    elif len(values := message.all(given[0])) != 2:
        yield Found(
            model.at(values[0]),
            f"{given[0]} of {kind} has {len(values)} value{'s' if len(values) > 1 else ''}",
            f"it takes two, for no and for yes: {_WHY}",
            f"write {given[0]}: [ {'false, true' if given[0].startswith('bool') else '0, 1'} ]",
        )
