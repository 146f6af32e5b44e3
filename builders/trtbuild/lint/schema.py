"""A config's tree held against Triton's own message definitions: unknown keys, wrong types, doubled fields.

Triton stops at the first of these with "Error parsing text-format" and a position; here each is told with
its key, what stands there, and what belongs there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any

from trtbuild.lint.pbtxt import Field, Kind, Message


@dataclass(frozen=True)
class Misfit:
    """One field that Triton's parser would refuse. ``correction`` is the text that was certainly meant."""

    rule: str
    path: str
    field: Field
    message: str
    remedy: str
    correction: str | None = None


@cache
def _config_descriptor() -> Any:
    from tritonclient.grpc import model_config_pb2

    return model_config_pb2.ModelConfig.DESCRIPTOR


def misfits(config: Message) -> Iterator[Misfit]:
    """What of ``config`` does not fit ``inference.ModelConfig``, in the order of the file."""
    yield from _check_message(config, _config_descriptor(), "")


def _check_message(message: Message, descriptor: Any, prefix: str) -> Iterator[Misfit]:
    known = _fields(descriptor.full_name)
    first_line: dict[str, int] = {}
    chosen: dict[str, Field] = {}  # oneof → the member that is set
    for field in message.fields:
        path = f"{prefix}.{field.name}" if prefix else field.name
        definition = known.get(field.name)
        if definition is None:
            if field.name in _NEWER.get(descriptor.name, ()):
                continue
            yield _unknown(field, path, list(known), descriptor.name)
            continue
        if not definition.is_repeated:
            if field.name in first_line:
                yield Misfit(
                    "duplicate-key", path, field,
                    f"{path} is already set on line {first_line[field.name]}, and can be set once only",
                    "keep one of the two",
                )  # fmt: skip
            first_line.setdefault(field.name, field.line)
        if (choice := definition.containing_oneof) is not None:
            other = chosen.setdefault(choice.name, field)
            if other.name != field.name:
                yield Misfit(
                    "duplicate-key", path, field,
                    f"{path} stands beside {other.name} (line {other.line}), and only one of them can be set",
                    "keep one of the two",
                )  # fmt: skip
        yield from _check_value(field, path, definition)


def _unknown(field: Field, path: str, known: list[str], owner: str) -> Misfit:
    elsewhere = _owners().get(field.name)
    near = get_close_matches(field.name, known, n=1, cutoff=0.6)
    if elsewhere and not (near and len(near[0]) > 8):
        remedy = f"it belongs inside {' or '.join(elsewhere)}"
    elif near:
        remedy = f"did you mean `{near[0]}`?"
    else:
        remedy = f"known here: {', '.join(sorted(known)[:12])}…"
    return Misfit("unknown-key", path, field, f"{path} is not a field of {owner}", remedy)


@cache
def _fields(full_name: str) -> dict[str, Any]:
    """The fields of a message by name: a plain dict is read many times faster than a descriptor."""
    return dict(_config_descriptor().file.pool.FindMessageTypeByName(full_name).fields_by_name)


@cache
def _owners() -> dict[str, tuple[str, ...]]:
    """Field → the fields of a config that hold it one or two levels down, for keys at the wrong level."""
    found: dict[str, tuple[str, ...]] = {}

    def visit(descriptor: Any, path: str, depth: int) -> None:
        for name, definition in descriptor.fields_by_name.items():
            if path:
                found[name] = (*found.get(name, ()), path)
            if definition.message_type is not None and depth:
                visit(definition.message_type, f"{path}.{name}" if path else name, depth - 1)

    visit(_config_descriptor(), "", 2)
    return {name: paths[:2] for name, paths in found.items()}


def _check_value(field: Field, path: str, definition: Any) -> Iterator[Misfit]:
    if field.kind is Kind.PLACEHOLDER:
        yield Misfit(
            "unfilled-placeholder", path, field,
            f"{path} is still {field.text}: the template was not filled, and the file does not parse",
            f"{path} takes {_wanted(definition)}; put the value in place of {field.text}",
        )  # fmt: skip
        return
    if definition.message_type is not None:
        if field.message is None:
            yield _wrong(field, path, "a message in braces", f"write {field.name} {{ … }}")
        else:
            yield from _check_message(field.message, definition.message_type, path)
        return
    if field.kind is Kind.MESSAGE:
        yield _wrong(field, path, _wanted(definition), f"write {field.name}: VALUE")
        return
    problem = _scalar_problem(field, definition)
    if problem is not None:
        yield replace(_wrong(field, path, *problem), correction=_correction(field, definition))


def _correction(field: Field, definition: Any) -> str | None:
    """The right spelling, where there is only one."""
    if definition.cpp_type == definition.CPPTYPE_BOOL:
        return {"true": "true", "false": "false"}.get(field.text.strip().lower())
    if definition.cpp_type == definition.CPPTYPE_ENUM and field.kind in (Kind.WORD, Kind.STRING):
        names = list(definition.enum_type.values_by_name)
        text = field.text.strip().upper()
        plain = text.removeprefix("TYPE_")
        exact = (text, f"TYPE_{plain}", _DTYPES.get(plain, ""))
        return next((name for name in exact if name in names), None)
    quoted = Field(field.name, Kind.NUMBER, field.text.strip(), field.line, field.column)
    if field.kind is Kind.STRING and quoted.number is not None:
        return quoted.text if _scalar_problem(quoted, definition) is None else None
    return None


def _wrong(field: Field, path: str, wanted: str, remedy: str) -> Misfit:
    shown = (
        "{ … }"
        if field.kind is Kind.MESSAGE
        else repr(field.text)
        if field.kind is Kind.STRING
        else field.text
    )
    return Misfit("wrong-type", path, field, f"{path} is {shown}, and takes {wanted}", remedy)


def _scalar_problem(field: Field, definition: Any) -> tuple[str, str] | None:
    """``(what belongs there, what to write)``, or None where the value is right."""
    wanted, kind = _wanted(definition), definition.cpp_type
    if kind == definition.CPPTYPE_STRING:
        return None if field.kind is Kind.STRING else (wanted, f'write {field.name}: "{field.text}"')
    if kind == definition.CPPTYPE_ENUM:
        names = list(definition.enum_type.values_by_name)
        known = field.text in names or field.number in definition.enum_type.values_by_number
        if known and field.kind is not Kind.STRING:
            return None
        meant = enum_meant(field.text, names)
        return wanted, f"did you mean {meant}?" if meant else f"one of {', '.join(names)}"
    if kind == definition.CPPTYPE_BOOL:
        right = (
            field.text in ("true", "True", "t", "false", "False", "f", "0", "1")
            and field.kind is not Kind.STRING
        )
        return None if right else (wanted, f"write {field.name}: true or {field.name}: false")
    if field.kind is not Kind.NUMBER:
        inf = kind in (definition.CPPTYPE_FLOAT, definition.CPPTYPE_DOUBLE) and field.text.lower().lstrip(
            "-"
        ) in ("inf", "nan")
        return None if inf else (wanted, f"write a number without quotes, such as {field.name}: 8")
    return _number_problem(field, definition)


# Fields that a client library older than the server does not know.
_NEWER = {"ModelEnsembling": ("max_inflight_requests",)}

# What people write, from numpy, PyTorch and ONNX.
_DTYPES = {
    "FLOAT": "TYPE_FP32", "FLOAT32": "TYPE_FP32", "DOUBLE": "TYPE_FP64", "FLOAT64": "TYPE_FP64",
    "HALF": "TYPE_FP16", "FLOAT16": "TYPE_FP16", "BFLOAT16": "TYPE_BF16", "INT": "TYPE_INT32",
    "LONG": "TYPE_INT64", "BYTES": "TYPE_STRING", "STR": "TYPE_STRING", "BOOLEAN": "TYPE_BOOL",
    "BYTE": "TYPE_UINT8",
}  # fmt: skip

_DIGITS = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")
_RANGES = {
    "INT32": (-(2**31), 2**31 - 1),
    "INT64": (-(2**63), 2**63 - 1),
    "UINT32": (0, 2**32 - 1),
    "UINT64": (0, 2**64 - 1),
}


def enum_meant(text: str, names: list[str]) -> str | None:
    """The enum name that was probably meant."""
    plain = text.upper().removeprefix("TYPE_")
    for candidate in (text.upper(), f"TYPE_{plain}", f"KIND_{plain}", _DTYPES.get(plain, "")):
        if candidate in names:
            return candidate
    near = get_close_matches(text.upper(), names, n=1, cutoff=0.7)
    return near[0] if near else None


def _number_problem(field: Field, definition: Any) -> tuple[str, str] | None:
    for name, (low, high) in _RANGES.items():
        if definition.cpp_type != getattr(definition, f"CPPTYPE_{name}"):
            continue
        value = field.number
        if value is None and not _DIGITS.fullmatch(field.text):
            near = float(field.text.rstrip("fF"))
            example = math.trunc(near) if low <= near <= high else 8
            return _wanted(definition), f"write a whole number, such as {field.name}: {example}"
        fits = value is not None and low <= value <= high
        return None if fits else (f"a number from {low} to {high}", "choose one in that range")
    return None


_NAMES = {"STRING": "a string in quotes", "BOOL": "true or false", "FLOAT": "a number", "DOUBLE": "a number"}


def _wanted(definition: Any) -> str:
    if definition.message_type is not None:
        return "a message in braces"
    if definition.enum_type is not None:
        names = ", ".join(list(definition.enum_type.values_by_name)[:4])
        return f"one of the {definition.enum_type.name} names ({names}, …)"
    for name, words in _NAMES.items():
        if definition.cpp_type == getattr(definition, f"CPPTYPE_{name}"):
            return words
    return "a whole number"
