"""Reads safetensors files tensor by tensor with numpy alone, so that checks never hold more than one tensor.

Format: 8 bytes little-endian length of a JSON header, the header, then the tensors' bytes
(github.com/huggingface/safetensors, README).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trtbuild.errors import ModelSourceError
from trtbuild.plan.lfs import refuse_pointer

INDEX = "model.safetensors.index.json"
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32,
    "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
_RAW = {"BF16": np.uint16, "F8_E4M3": np.uint8}  # decoded to float32 here
# Bits of one value, where the format's README or its Rust crate (dtype.rs) names the type.
_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
}  # fmt: skip


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies. ``begin`` and ``end`` are byte offsets in the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Returns the tensors of a file by name, after checking that the file holds all their bytes.

    Raises:
        ModelSourceError: not a safetensors file, or cut off.
    """
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        refuse_pointer(path, first + file.read(64))
        file.seek(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if not 2 <= length <= min(_MAX_HEADER_BYTES, size_bytes - 8):
            raise ModelSourceError(
                f"{path}: not a safetensors file, or cut off in its header", "fetch the file again"
            )
        raw = file.read(length)
    try:
        header: dict[str, Any] = json.loads(raw)
        header.pop("__metadata__", None)
        start = 8 + length
        tensors = {
            name: TensorInfo(
                path,
                str(entry["dtype"]),
                tuple(int(dim) for dim in entry["shape"]),
                start + int(entry["data_offsets"][0]),
                start + int(entry["data_offsets"][1]),
            )
            for name, entry in header.items()
        }
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise ModelSourceError(
            f"{path}: its header is not JSON that gives each tensor a dtype, a shape and data_offsets",
            "fetch the file again",
        ) from error
    _check_places(path, tensors, start, size_bytes)
    return tensors


def _check_places(path: Path, tensors: Mapping[str, TensorInfo], start: int, size_bytes: int) -> None:
    """The format's own rule: tensors fill the file from its header to its end, without holes or overlaps."""
    end = max((info.end for info in tensors.values()), default=start)
    if end > size_bytes:
        raise ModelSourceError(
            f"{path}: cut off: its tensors end at byte {end}, the file at {size_bytes}",
            "fetch the file again",
        )
    position = start
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if info.begin != position or info.end < info.begin:
            raise ModelSourceError(
                f"{path}: damaged: {name} begins at byte {info.begin}, what is before it ends at {position}",
                "fetch the file again",
            )
        bits = _BITS.get(info.dtype)
        if min(info.shape, default=0) < 0 or (
            bits is not None and math.prod(info.shape) * bits != 8 * (info.end - info.begin)
        ):
            raise ModelSourceError(
                f"{path}: damaged: {name} has {info.end - info.begin} bytes for {info.dtype} of "
                f"{list(info.shape)}",
                "fetch the file again",
            )
        position = info.end
    if position != size_bytes:
        raise ModelSourceError(
            f"{path}: damaged: {size_bytes - position} bytes after its last tensor", "fetch the file again"
        )


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model: those that its index names, else model*.safetensors, else all.

    Some hold the weights a second time (Mistral's consolidated*.safetensors), or adapters beside them.
    """
    files = sorted(folder.glob("*.safetensors"))
    try:
        names = set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        names = {path.name for path in files if path.name.startswith("model")}
    return [path for path in files if path.name in names] or files


def read_headers(folder: Path) -> dict[str, TensorInfo]:
    """Returns the tensors of a model's safetensors files (``weight_files``) by name.

    Raises:
        ModelSourceError: as ``read_header``, or a name that two files hold.
    """
    tensors: dict[str, TensorInfo] = {}
    for path in weight_files(folder):
        for name, info in read_header(path).items():
            if name in tensors:
                raise ModelSourceError(
                    f"{folder}: {name} is in {tensors[name].file.name} and in {path.name}",
                    "remove the files of the other copy of the model",
                )
            tensors[name] = info
    return tensors


def read_tensor(info: TensorInfo, rows: tuple[int, int] | None = None) -> npt.NDArray[Any]:
    """Reads one tensor in its shape; BF16 and FP8 (E4M3) come as float32.

    Args:
        rows: first row and the one after the last; None reads all. Other rows are not touched.

    Raises:
        ModelSourceError: a type that numpy has not.
    """
    raw = _RAW.get(info.dtype)
    dtype = raw or _DTYPES.get(info.dtype)
    if dtype is None:
        raise ModelSourceError(f"{info.file}: tensors of type {info.dtype} cannot be read here")
    item_bytes = np.dtype(dtype).itemsize
    first, last = rows if rows is not None else (0, info.shape[0] if info.shape else 1)
    width = math.prod(info.shape[1:])
    offset = info.begin + first * width * item_bytes
    values = np.fromfile(info.file, dtype=dtype, count=(last - first) * width, offset=offset)
    if info.dtype == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    elif raw is not None:
        values = E4M3_VALUES[values]
    return values.reshape((last - first, *info.shape[1:]) if info.shape else ())


def iter_matching(tensors: Mapping[str, TensorInfo], suffix: str) -> Iterator[tuple[str, TensorInfo]]:
    """The tensors whose name ends in ``suffix``, with the name before it."""
    for name, info in tensors.items():
        if name.endswith(suffix):
            yield name.removesuffix(suffix), info


def _e4m3_values() -> npt.NDArray[np.float32]:
    """Every value of 8-bit E4M3: 4 exponent and 3 mantissa bits, no infinity (OCP 8-bit floating point)."""
    codes = np.arange(256)
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent, mantissa = (codes >> 3) & 0xF, codes & 0x7
    normal = np.exp2(exponent - 7.0) * (1 + mantissa / 8)
    values = sign * np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal)
    values[(codes & 0x7F) == 0x7F] = np.nan
    floats: npt.NDArray[np.float32] = values.astype(np.float32)
    return floats


E4M3_VALUES = _e4m3_values()
