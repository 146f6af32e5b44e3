"""Dimensions that no tensor has.

A dimension is -1 (free) or at least 1, and a reshape holds as many elements as the shape itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Message
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """dims and reshape of every input and output."""
    for model in repository.readable:
        for entry in (*model.all("input"), *model.all("output")):
            if entry.message is not None:
                yield from _tensor(model, entry.message)


def _tensor(model: ModelFolder, tensor: Message) -> Iterator[Found]:
    name = tensor.get("name")
    label = name.text if name else "a tensor without a name"
    dims = tensor.all("dims")
    for item in dims:
        if item.number is not None and (item.number < -1 or item.number == 0):
            yield Found(
                model.at(item),
                f"{label} has a dimension of {item.text}",
                "Triton takes dimensions of at least 1, or -1 for any, and refuses the model",
                "write -1 where the size varies",
            )
            return
    shape = tensor.get("reshape")
    if shape is None or shape.message is None:
        return
    outer = [item.number for item in dims if item.number is not None]
    inner = [item.number for item in shape.message.all("shape") if item.number is not None]
    if -1 not in (*outer, *inner) and outer and prod(outer) != prod(inner):
        yield Found(
            model.at(shape),
            f"{label} has dims {outer} ({prod(outer)} elements) and reshape {inner} ({prod(inner)})",
            "a reshape cannot change the number of elements, and Triton refuses the model",
            "make both hold as many elements",
        )
