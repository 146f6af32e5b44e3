"""Tensors on the wire: little-endian, C order; BYTES elements have a uint32 length before them.

Small tensors go through ``struct``, without numpy, because a token costs microseconds here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .errors import ProtocolError, UsageError

if TYPE_CHECKING:
    import numpy as np

# Triton's dtype → (struct code, bytes, numpy name); KServe v2 protocol, "Tensor Data Types"
FORMATS: Final = {
    "BOOL": ("?", 1, "bool"),
    "UINT8": ("B", 1, "uint8"),
    "UINT16": ("H", 2, "uint16"),
    "UINT32": ("I", 4, "uint32"),
    "UINT64": ("Q", 8, "uint64"),
    "INT8": ("b", 1, "int8"),
    "INT16": ("h", 2, "int16"),
    "INT32": ("i", 4, "int32"),
    "INT64": ("q", 8, "int64"),
    "FP16": ("e", 2, "float16"),
    "FP32": ("f", 4, "float32"),
    "FP64": ("d", 8, "float64"),
}
LENGTH: Final = struct.Struct("<I")


def pack_bytes(items: Sequence[bytes]) -> bytes:
    """Returns the elements of a BYTES tensor, each behind its length."""
    return b"".join(part for item in items for part in (LENGTH.pack(len(item)), item))


def unpack_bytes(raw: bytes) -> list[bytes]:
    """Returns the elements of a BYTES tensor.

    Raises:
        ProtocolError: if the lengths do not add up to the buffer.
    """
    items = []
    at, end = 0, len(raw)
    while at + 4 <= end:
        (size,) = LENGTH.unpack_from(raw, at)
        at += 4
        items.append(raw[at : at + size])
        at += size
    if at != end:
        raise ProtocolError(f"a BYTES tensor of {end} bytes is cut: its lengths add up to {at}")
    return items


def pack(name: str, dtype: str, values: Sequence[Any]) -> bytes:
    """Returns flat values as the bytes of a tensor of this dtype.

    Raises:
        UsageError: for values that are no such numbers or do not fit.
    """
    if dtype == "BYTES":
        return pack_bytes([_utf8(name, value) for value in values])
    try:
        code = FORMATS[dtype][0]
    except KeyError:
        raise UsageError(f"input {name!r} has dtype {dtype}, which this client cannot send") from None
    if dtype == "BOOL":
        values = [bool(value) for value in values]
    try:
        return struct.pack(f"<{len(values)}{code}", *values)
    except (struct.error, OverflowError, TypeError) as exc:
        raise UsageError(f"{name!r} is {dtype}; {list(values)[:8]!r} is not: {exc}") from exc


def _utf8(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise UsageError(f"{name!r} takes text; {value!r} is {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as exc:
        raise UsageError(f"{name!r} holds a lone surrogate at character {exc.start}: not text") from None


def unpack(dtype: str, raw: bytes) -> tuple[Any, ...]:
    """Returns the flat numbers of a tensor.

    Raises:
        ProtocolError: for a dtype without numbers or a buffer that is no multiple of its size.
    """
    try:
        code, size, _ = FORMATS[dtype]
    except KeyError:
        raise ProtocolError(f"got dtype {dtype} where numbers were expected") from None
    count, rest = divmod(len(raw), size)
    if rest:
        raise ProtocolError(f"a {dtype} tensor has {len(raw)} bytes, no multiple of {size}")
    return struct.unpack(f"<{count}{code}", raw)


def to_array(dtype: str, shape: Sequence[int], raw: bytes) -> np.ndarray[Any, Any]:
    """Returns a tensor as an array of its shape; BYTES become an object array of ``bytes``.

    Raises:
        ProtocolError: if buffer and shape disagree.
    """
    import numpy as np

    try:
        if dtype == "BYTES":
            flat: np.ndarray[Any, Any] = np.empty(len(items := unpack_bytes(raw)), dtype=object)
            flat[:] = items
        elif dtype == "BF16":  # the upper half of a float32
            flat = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            flat = np.frombuffer(raw, FORMATS[dtype][2])
        return flat.reshape(tuple(shape))
    except (KeyError, ValueError) as exc:
        raise ProtocolError(f"{len(raw)} bytes are no {dtype} tensor of shape {list(shape)}: {exc}") from exc


def from_array(name: str, dtype: str, array: np.ndarray[Any, Any]) -> bytes:
    """Returns an array's bytes as ``dtype``, converting only where no value changes.

    Raises:
        UsageError: if the array does not hold such values.
    """
    import numpy as np

    if dtype == "BYTES":
        return pack_bytes([_utf8(name, item) for item in array.ravel().tolist()])
    if dtype not in FORMATS:
        raise UsageError(f"input {name!r} has dtype {dtype}, which this client cannot send")
    wanted = np.dtype(FORMATS[dtype][2])
    if array.dtype != wanted:
        same_kind = np.can_cast(array.dtype, wanted, "same_kind")
        cast = array.astype(wanted) if same_kind or array.dtype.kind in "iub" else None
        if cast is None or (array.dtype.kind in "iub" and not np.array_equal(cast, array)):
            raise UsageError(
                f"input {name!r} is {dtype}; the array is {array.dtype} and cannot become it unchanged"
            )
        array = cast
    return np.ascontiguousarray(array).tobytes()


_TYPED: Final = (
    "int_contents fp32_contents bool_contents int64_contents uint_contents uint64_contents fp64_contents"
)


def contents(output: Any) -> bytes:
    """A tensor that came in typed protobuf fields, as the raw bytes that Triton sends otherwise."""
    if output.datatype == "BYTES":
        return pack_bytes(output.contents.bytes_contents)
    values = next((found for name in _TYPED.split() if (found := getattr(output.contents, name))), ())
    return pack(output.name, output.datatype, values)
