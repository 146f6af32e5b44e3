"""The header of a GGUF file: metadata and tensor table, read without loading a weight.

Layout (ggml's ``docs/gguf.md``, versions 2 and 3, little endian): magic ``GGUF``, u32 version, u64 tensors,
u64 metadata pairs; a pair is key, u32 type, value; a tensor is name, u32 rank, u64s, u32 type, u64 offset.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trtbuild.errors import ModelSourceError

Scalar = int | float | bool | str

_STRING, _ARRAY = 8, 9
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
# general.file_type and tensor types share most names; ggml.h, enum ggml_type.
_TENSOR_TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1", 10: "q2_k",
    11: "q3_k", 12: "q4_k", 13: "q5_k", 14: "q6_k", 15: "q8_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs",
    19: "iq1_s", 20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 29: "iq1_m", 30: "bf16", 39: "mxfp4",
}  # fmt: skip
_MAX_STRING_BYTES = 1 << 24
_MAX_ENTRIES = 1 << 20
_MAX_SKIP_BYTES = 1 << 32


@dataclass(frozen=True)
class GgufHeader:
    """``metadata`` holds the scalars, not the arrays; ``elements_by_type`` counts weights by tensor type."""

    metadata: dict[str, Scalar]
    elements_by_type: dict[str, int]

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", "unknown"))

    @property
    def weight_type(self) -> str:
        """The type that most weights have, such as ``q4_1``: what people name the file by."""
        return max(self.elements_by_type, key=lambda kind: self.elements_by_type[kind])


def read_gguf_header(path: Path) -> GgufHeader:
    """Reads the header.

    Raises:
        ModelSourceError: not a GGUF file, of an unknown version, or cut off.
    """
    try:
        with path.open("rb") as file:
            return _read(file, path)
    except (struct.error, UnicodeDecodeError, KeyError, RecursionError) as error:
        raise ModelSourceError(
            f"{path}: the GGUF header is broken or cut off", "fetch the file again"
        ) from error
    except OSError as error:
        raise ModelSourceError(f"{path}: cannot be read: {error.strerror}") from error


def _read(file: BinaryIO, path: Path) -> GgufHeader:
    if file.read(4) != b"GGUF":
        raise ModelSourceError(f"{path}: not a GGUF file (it does not begin with GGUF)")
    (version,) = _unpack(file, "I")
    if version not in (2, 3):
        raise ModelSourceError(f"{path}: GGUF version {version}; versions 2 and 3 can be read")
    tensors, pairs = _unpack(file, "QQ")
    if max(tensors, pairs) > _MAX_ENTRIES:
        raise struct.error("counts beyond reason")
    metadata: dict[str, Scalar] = {}
    for _ in range(pairs):
        key = _string(file)
        value = _value(file, _unpack(file, "I")[0])
        if value is not None:
            metadata[key] = value
    elements: Counter[str] = Counter()
    for _ in range(tensors):
        _string(file)
        (dimensions,) = _unpack(file, "I")
        shape = _unpack(file, f"{min(dimensions, 8)}Q")
        kind, _offset = _unpack(file, "IQ")
        elements[_TENSOR_TYPES.get(kind, f"type{kind}")] += math.prod(shape)
    if not elements:
        raise ModelSourceError(f"{path}: this GGUF file holds no tensors")
    return GgufHeader(metadata, dict(elements))


def _value(file: BinaryIO, kind: int) -> Scalar | None:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        value: Scalar = _unpack(file, _SCALARS[kind])[0]
        return value
    item, count = _unpack(file, "IQ")
    if item == _STRING:
        for _ in range(count):
            (length,) = _unpack(file, "Q")
            _skip(file, length)
    elif item == _ARRAY:
        for _ in range(count):
            _value(file, _ARRAY)
    else:
        _skip(file, struct.calcsize("<" + _SCALARS[item]) * count)
    return None


def _skip(file: BinaryIO, count_bytes: int) -> None:
    if count_bytes > _MAX_SKIP_BYTES:
        raise struct.error("array beyond reason")
    file.seek(count_bytes, 1)


def _string(file: BinaryIO) -> str:
    (length,) = _unpack(file, "Q")
    if length > _MAX_STRING_BYTES:
        raise struct.error("string beyond reason")
    return file.read(length).decode("utf-8")


def _unpack(file: BinaryIO, layout: str) -> tuple[int, ...]:
    layout = "<" + layout
    return struct.unpack(layout, file.read(struct.calcsize(layout)))
