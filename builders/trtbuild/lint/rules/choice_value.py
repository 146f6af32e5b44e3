"""A parameter whose value is not one of its choices.

A wrong `gpt_model_type` keeps the model from loading; a wrong scheduler policy or decoding mode is logged
as a warning and the default is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from trtbuild.lint.findings import Edit, Found
from trtbuild.lint.parameters import CHOICES
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_engine

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Parameters with a closed list of values."""
    for model in repository.readable:
        if not is_engine(model):
            continue
        for key, choices in CHOICES.items():
            parameter = model.parameters.get(key)
            if parameter is None or not parameter.is_set or parameter.value in choices:
                continue
            value, place = parameter.value, model.at(parameter.place)
            same = next((choice for choice in choices if choice.lower() == value.strip().lower()), None)
            near = get_close_matches(value.lower(), choices, n=1, cutoff=0.5)
            meant = same or (near[0] if near else None)
            why = (
                "the model does not load"
                if key == "gpt_model_type"
                else "the backend takes its default instead"
            )
            yield Found(
                place,
                f"parameter {key} is {value!r}",
                f"it is none of {', '.join(choices)}; {why}",
                f'did you mean "{meant}"?' if meant else f"choose one of {', '.join(choices)}",
                edit=Edit(place, value, same) if same else None,
            )
