"""Dimensions that no tensor has.

A dimension is -1 (free) or at least 1. A reshape keeps the number of elements, and between free dimensions,
too; an empty one makes a scalar of one element, which needs a batch around it. `format` of a picture takes
three dims (core, model_config_utils.cc, `ValidateIOShape`, `ValidateModelInput`).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Field, Message
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_as_written

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """dims and reshape of every input and output."""
    for model in repository.readable:
        scalars: list[tuple[str, Field]] = []
        for entry in (*model.all("input"), *model.all("output")):
            if entry.message is not None:
                yield from _tensor(model, entry.message, scalars)
        if scalars and _takes_no_batches(model):
            yield _scalars(model, scalars)


def _tensor(model: ModelFolder, tensor: Message, scalars: list[tuple[str, Field]]) -> Iterator[Found]:
    name = tensor.get("name")
    label = name.text if name else "a tensor without a name"
    dims, reshape = tensor.all("dims"), tensor.get("reshape")
    shape = reshape.message.all("shape") if reshape is not None and reshape.message is not None else []
    for what, items in (("a dimension", dims), ("a dimension in its reshape", shape)):
        for item in items:
            if item.number is not None and (item.number < -1 or item.number == 0):
                yield Found(
                    model.at(item),
                    f"{label} has {what} of {item.text}",
                    "Triton takes dimensions of at least 1, or -1 for any, and refuses the model",
                    "write -1 where the size varies",
                )
                return
    layout = tensor.get("format")
    if layout is not None and layout.text in ("FORMAT_NHWC", "FORMAT_NCHW") and len(dims) not in (0, 3):
        yield Found(
            model.at(layout),
            f"{label} has {layout.text} and {len(dims)} dimension{'s' if len(dims) > 1 else ''}",
            "a picture has three, the batch not counted, and Triton refuses the model",
            "write three dims, or leave format out",
        )
    outer = [item.number for item in dims if item.number is not None]
    inner = [item.number for item in shape if item.number is not None]
    if reshape is None or not dims or len(outer) < len(dims) or len(inner) < len(shape):
        return
    if not shape:
        scalars.append((label, reshape))
    if outer.count(-1) != inner.count(-1):
        yield Found(
            model.at(reshape),
            f"{label} has dims {outer} ({_free(outer)}) and reshape {inner} ({_free(inner)})",
            "a reshape keeps the free dimensions, and Triton refuses the model",
            "write as many -1 in both",
        )
    elif _counts(outer) != _counts(inner):
        between = ", counted between the free dimensions" if -1 in outer else ""
        yield Found(
            model.at(reshape),
            f"{label} has dims {outer} ({_shown(outer)} elements{between}) and reshape {inner} "
            f"({_shown(inner)})",
            "a reshape cannot change the number of elements, and Triton refuses the model",
            "make both hold as many elements",
        )


def _free(dims: list[int]) -> str:
    return f"{dims.count(-1) or 'none'} free"


def _counts(dims: list[int]) -> list[int]:
    """Elements before, between and behind the free dimensions; a scalar has one."""
    counts = [1]
    for dim in dims:
        if dim == -1:
            counts.append(1)
        else:
            counts[-1] *= dim
    return counts


def _shown(dims: list[int]) -> str:
    return " | ".join(map(str, _counts(dims)))


def _takes_no_batches(model: ModelFolder) -> bool:
    size = model.field("max_batch_size")
    return is_as_written(model) if size is None else size.number == 0


def _scalars(model: ModelFolder, scalars: list[tuple[str, Field]]) -> Found:
    names = [name for name, _ in scalars]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return Found(
        model.at(scalars[0][1]),
        f"an empty reshape of {', '.join(names[:4])}{more} with max_batch_size 0",
        "without a batch dimension nothing would be left of the shape, and Triton refuses the model",
        "set max_batch_size to at least 1, or remove the reshape",
    )
