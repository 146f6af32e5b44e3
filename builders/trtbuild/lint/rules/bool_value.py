"""A boolean that the backend does not read as one.

The C++ backend reads True, true, TRUE, 1 and False, false, FALSE, 0. Anything else (`yes`, `on`, a trailing
space) is logged as a warning and the default is taken; the LLM API's helper reads it as false. NVIDIA's
Python steps read `yes`, `y` and `t` as true, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Edit, Found
from trtbuild.lint.model import ModelFolder, Parameter
from trtbuild.lint.parameters import BOOLEANS, PYTHON_BOOLEANS
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_bls, is_engine, is_llmapi, is_postprocessing, is_preprocessing

SEVERITY = "error"
_CPP = frozenset({"true", "True", "TRUE", "1", "false", "False", "FALSE", "0"})
_TRUE, _FALSE = (
    frozenset({"true", "yes", "1", "t", "y", "on"}),
    frozenset({"false", "no", "0", "f", "n", "off"}),
)


def check(repository: LintRepository) -> Iterator[Found]:
    """Boolean parameters of the engine and of NVIDIA's Python steps."""
    for model in repository.readable:
        if is_engine(model) or is_llmapi(model):
            names, loose = BOOLEANS, False
        elif is_preprocessing(model) or is_postprocessing(model) or is_bls(model):
            names, loose = PYTHON_BOOLEANS, True
        else:
            continue
        for key in names & model.parameters.keys():
            parameter = model.parameters[key]
            if parameter.is_set and not _good(parameter.value, loose=loose):
                yield _found(model, parameter)


def _good(value: str, *, loose: bool) -> bool:
    if value in _CPP:
        return True
    return loose and value.lower() in (_TRUE | _FALSE) - {"on"}


def _found(model: ModelFolder, parameter: Parameter) -> Found:
    plain = parameter.value.strip().lower()
    meant = "true" if plain in _TRUE else "false" if plain in _FALSE else None
    place = model.at(parameter.place)
    return Found(
        place,
        f"parameter {parameter.key} is {parameter.value!r}",
        "the backend cannot read it as a boolean: it takes the default or false, and says so in "
        "a log line only",
        f'write string_value: "{meant or "true"}"' + ("" if meant else ' or "false"'),
        edit=Edit(place, parameter.value, meant) if meant else None,
    )
