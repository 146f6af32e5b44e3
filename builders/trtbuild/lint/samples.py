"""Values that a config takes from files beside it: warm-up samples, and what a state begins with."""

from __future__ import annotations

import math
from pathlib import Path

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Field

_LONGEST_TEXTS = 1 << 20  # bytes; a longer file is not looked through
# Bytes of an element; text has no fixed size.
_BYTES = {
    **dict.fromkeys(("TYPE_BOOL", "TYPE_UINT8", "TYPE_INT8"), 1),
    **dict.fromkeys(("TYPE_UINT16", "TYPE_INT16", "TYPE_FP16", "TYPE_BF16"), 2),
    **dict.fromkeys(("TYPE_UINT32", "TYPE_INT32", "TYPE_FP32"), 4),
    **dict.fromkeys(("TYPE_UINT64", "TYPE_INT64", "TYPE_FP64"), 8),
}


def short_file(
    model: ModelFolder, folder: str, file: Field, dtype: Field | None, dims: list[int | None]
) -> Found | None:
    """What is wrong with a data file of the model's ``folder``: it is missing, or shorter than the tensor."""
    path = model.path / folder / file.text
    if not path.is_file():
        return Found(
            model.at(file),
            f"{folder}/{file.text} is missing",
            f"Triton reads it from the model's folder {folder}, and the model does not load",
            f"put the file into {model.name}/{folder}/",
        )
    if dtype is not None and dtype.text == "TYPE_STRING":
        return (
            None
            if _is_serialised(path)
            else Found(
                model.at(file),
                f"{folder}/{file.text} is no list of texts",
                "each has 4 bytes of length before it: Triton refuses the file, and the model does not load",
                "write len(text).to_bytes(4, 'little') + text for each element",
            )
        )
    size = _BYTES.get(dtype.text) if dtype is not None else None
    numbers = [dim for dim in dims if dim is not None and dim >= 0]
    if size is None or len(numbers) < len(dims):
        return None
    needed, has = size * math.prod(numbers), path.stat().st_size
    if has >= needed:
        return None
    return Found(
        model.at(file),
        f"{folder}/{file.text} has {has} bytes, and the tensor {needed}",
        "Triton refuses a shorter file, and the model does not load",
        "write the tensor's raw bytes, without a batch",
    )


def _is_serialised(path: Path) -> bool:
    """Whether a file is texts one after the other, each behind its length in 4 bytes, the lowest first."""
    data, at = path.read_bytes()[:_LONGEST_TEXTS], 0
    while at < len(data):
        at += 4 + int.from_bytes(data[at : at + 4], "little")
    return at == len(data) or len(data) == _LONGEST_TEXTS
