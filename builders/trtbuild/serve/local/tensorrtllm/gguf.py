"""The header of a GGUF file: metadata and tensor table, read without loading a weight.

Layout (ggml's ``docs/gguf.md``, versions 2 and 3, little endian): magic ``GGUF``, u32 version, u64 tensors,
u64 entries; an entry is key, u32 type, value; a tensor is name, u32 rank, u64s, u32 type, u64 offset.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .limits import LoadRefused

# GGML's type numbers that the CPU engine reads (gguf-py constants.py, GGMLQuantizationType).
GGUF_TENSOR_TYPES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 8: "Q8_0", 12: "Q4_K", 14: "Q6_K"}

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9  # gguf-py constants.py, GGUFValueType
# Beyond what any model has; a damaged count must not make us read for minutes.
_MAX_TEXT_BYTES = 1 << 24
_MAX_ENTRIES = 1 << 20
_MAX_ARRAY_BYTES = 1 << 32
_MAX_RANK = 8


@dataclass(frozen=True)
class GgufHeader:
    """``entries``: scalars, texts and the arrays that were asked for, by key. ``tensors``: GGML type number
    by name. ``shapes``: dimensions by tensor name, the fastest first."""

    entries: dict[str, Any]
    tensors: dict[str, int]
    shapes: dict[str, tuple[int, ...]]

    @property
    def architecture(self) -> str:
        return str(self.entries.get("general.architecture", "unknown"))

    @property
    def weight_type(self) -> str:
        """The type that most tensors have, norms aside, in lower case: what people name the file by."""
        kinds = Counter(kind for name, kind in self.tensors.items() if not name.endswith("norm.weight"))
        ((kind, _),) = kinds.most_common(1) or [(0, 0)]
        return GGUF_TENSOR_TYPES.get(kind, f"type{kind}").lower()


def read_gguf_header(path: Path, *, arrays: str | None = None) -> GgufHeader:
    """A GGUF file's header.

    Args:
        arrays: beginning of the keys whose arrays are read, as lists; all others are skipped.

    Raises:
        LoadRefused: when the file is no GGUF of version 2 or 3, or its header is damaged or cut off.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise LoadRefused(f"{path.name} is not a GGUF file")
            version, tensor_count, entry_count = _unpack(file, "<IQQ")
            if version not in (2, 3):
                raise LoadRefused(f"{path.name} is GGUF version {version}; 2 and 3 can be read")
            _bound(max(tensor_count, entry_count), _MAX_ENTRIES)
            entries = dict(_entry(file, arrays) for _ in range(entry_count))
            tensors = [_tensor(file) for _ in range(tensor_count)]
    except (struct.error, UnicodeDecodeError, KeyError, RecursionError) as error:
        raise LoadRefused(f"{path.name} is damaged: its header cannot be read ({error})") from error
    return GgufHeader(
        entries={key: value for key, value in entries.items() if value is not None},
        tensors={name: kind for name, kind, _ in tensors},
        shapes={name: shape for name, _, shape in tensors},
    )


def _entry(file: BinaryIO, arrays: str | None) -> tuple[str, Any]:
    key = _text(file)
    kept = arrays is not None and key.startswith(arrays)
    return key, _value(file, _unpack(file, "<I")[0], kept=kept)


def _tensor(file: BinaryIO) -> tuple[str, int, tuple[int, ...]]:
    name = _text(file)
    (rank,) = _unpack(file, "<I")
    _bound(rank, _MAX_RANK)
    *shape, kind, _offset = _unpack(file, f"<{rank}QIQ")
    return name, kind, tuple(shape)


def _value(file: BinaryIO, kind: int, *, kept: bool) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        return _unpack(file, "<" + _SCALARS[kind])[0]
    item, count = _unpack(file, "<IQ")
    if kept:
        _bound(count, _MAX_ENTRIES)
        if item in (_STRING, _ARRAY):
            return [_value(file, item, kept=True) for _ in range(count)]
        return list(_unpack(file, f"<{count}{_SCALARS[item]}"))
    if item == _STRING:
        for _ in range(count):
            _skip(file, _unpack(file, "<Q")[0])
    elif item == _ARRAY:
        for _ in range(count):
            _value(file, _ARRAY, kept=False)
    else:
        _skip(file, count * struct.calcsize("<" + _SCALARS[item]))
    return None


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "<Q")
    _bound(length, _MAX_TEXT_BYTES)
    data = file.read(length)
    if len(data) < length:
        raise struct.error("a text is cut off")
    return data.decode("utf-8")


def _skip(file: BinaryIO, count_bytes: int) -> None:
    _bound(count_bytes, _MAX_ARRAY_BYTES)
    file.seek(count_bytes, 1)


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _bound(value: int, most: int) -> None:
    if value > most:
        raise struct.error(f"{value} is beyond reason")
