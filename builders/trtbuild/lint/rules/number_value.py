"""A number that the backend does not read as written.

`0,5` with a decimal comma is read up to the comma, `8k` as 8, and a fraction of 1.0 is refused: the KV
cache may take less than all of the free memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.lint.findings import Edit, Found
from trtbuild.lint.model import ModelFolder, Parameter
from trtbuild.lint.parameters import FRACTIONS, WHOLE_NUMBERS
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_engine, is_llmapi

SEVERITY = "error"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_COMMA = re.compile(r"([0-9]+),([0-9]+)")


def check(repository: LintRepository) -> Iterator[Found]:
    """Whole numbers and fractions of engine models."""
    for model in repository.readable:
        if not (is_engine(model) or is_llmapi(model)):
            continue
        for key, parameter in model.parameters.items():
            if not parameter.is_set:
                continue
            if key in WHOLE_NUMBERS:
                yield from _whole(model, parameter)
            elif key in FRACTIONS:
                yield from _fraction(model, parameter, *FRACTIONS[key])


def _whole(model: ModelFolder, parameter: Parameter) -> Iterator[Found]:
    value = parameter.value
    if not _WHOLE.fullmatch(value):
        yield Found(
            model.at(parameter.place),
            f"parameter {parameter.key} is {value!r}, and takes a whole number",
            "the backend reads the digits at its beginning, or takes the default with a line in the log",
            'write digits only, such as string_value: "4096"',
            edit=_stripped(model, parameter, _WHOLE),
        )
    elif value.startswith("-") and value.strip("-0"):
        yield Found(
            model.at(parameter.place),
            f"parameter {parameter.key} is {value}",
            "a negative number has no meaning here, and becomes a very large one",
            "leave it empty for the default",
        )


def _fraction(model: ModelFolder, parameter: Parameter, low: float, high: float) -> Iterator[Found]:
    value, place = parameter.value, model.at(parameter.place)
    if _DECIMAL.fullmatch(value):
        number = float(value)
        if low < number <= high or (number == low and parameter.key != "kv_cache_free_gpu_mem_fraction"):
            return
        below = "below 1" if high < 1 else "at most 1"
        yield Found(
            place,
            f"parameter {parameter.key} is {value}",
            f"it is a share and must be above 0 and {below}; the backend refuses it when the model loads",
            'write a share such as string_value: "0.9"',
        )
        return
    comma = _COMMA.fullmatch(value.strip())
    edit = Edit(place, value, f"{comma[1]}.{comma[2]}") if comma else _stripped(model, parameter, _DECIMAL)
    yield Found(
        place,
        f"parameter {parameter.key} is {value!r}, and takes a decimal number",
        "the backend reads it up to the first strange character, or takes the default with a line in the log",
        f'write string_value: "{edit.new}"' if edit else 'write a share such as string_value: "0.9"',
        edit=edit,
    )


def _stripped(model: ModelFolder, parameter: Parameter, form: re.Pattern[str]) -> Edit | None:
    plain = parameter.value.strip()
    return Edit(model.at(parameter.place), parameter.value, plain) if form.fullmatch(plain) else None
