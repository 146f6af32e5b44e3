"""The tensors of a PyTorch checkpoint, read without PyTorch and without running anything that is in it.

For files whose content is known by checksum; both formats are pickles, so only the few names that a state
dict of plain tensors needs are resolved, to functions of this module, and every other name ends the reading.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from trtbuild.errors import ModelSourceError

_MAGIC = 0x1950A86A20F9469CFC6C  # torch/serialization.py, MAGIC_NUMBER of the format before PyTorch 1.6
_STORAGES: dict[str, Any] = {
    "FloatStorage": np.dtype("<f4"),
    "DoubleStorage": np.dtype("<f8"),
    "HalfStorage": np.dtype("<f2"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "BoolStorage": np.dtype("?"),
}


def read_state_dict(path: Path) -> dict[str, Any]:
    """Name → array of a file that ``torch.save(model.state_dict(), path)`` wrote.

    Raises:
        ModelSourceError: something else is in it.
    """
    try:
        tensors = _zipped(path) if zipfile.is_zipfile(path) else _legacy(path)
        return {str(name): tensor.array() for name, tensor in tensors.items()}
    except (pickle.UnpicklingError, EOFError, KeyError, ValueError, AttributeError, TypeError) as error:
        raise ModelSourceError(f"{path} is no PyTorch state dict of plain tensors: {error}") from error


class _Storage:
    def __init__(self, dtype: Any, key: str) -> None:
        self.dtype, self.key = dtype, key
        self.data = b""


class _Tensor:
    def __init__(self, storage: _Storage, offset: int, size: Any, stride: Any) -> None:
        self._storage, self._offset, self._size, self._stride = storage, offset, size, stride

    def array(self) -> Any:
        values = np.frombuffer(self._storage.data, self._storage.dtype)[self._offset :]
        steps = [step * values.itemsize for step in self._stride]
        furthest = (
            sum((n - 1) * step for n, step in zip(self._size, self._stride, strict=True)) if self._size else 0
        )
        if (
            any(n < 0 for n in self._size)
            or any(s < 0 for s in self._stride)
            or furthest >= max(1, len(values))
        ):
            raise ValueError("a tensor reaches over its storage")
        return np.lib.stride_tricks.as_strided(values, self._size, steps).copy()


def _rebuild(storage: _Storage, offset: int, size: Any, stride: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, size, stride)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, storages: dict[str, _Storage]) -> None:
        super().__init__(file, encoding="utf-8")
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if module == "torch" and name in _STORAGES:
            return name
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, name, key = pid[0], pid[1], str(pid[2])
        if kind != "storage" or name not in _STORAGES:
            raise pickle.UnpicklingError(f"it refers to {kind}")
        return self._storages.setdefault(key, _Storage(_STORAGES[name], key))


def _legacy(path: Path) -> dict[str, _Tensor]:
    storages: dict[str, _Storage] = {}
    with path.open("rb") as file:
        if _Unpickler(file, {}).load() != _MAGIC:
            raise ValueError("it does not begin as one")
        for _ in range(2):  # the protocol's version, and facts of the machine
            _Unpickler(file, {}).load()
        tensors: dict[str, _Tensor] = _Unpickler(file, storages).load()
        for key in _Unpickler(file, {}).load():
            storage = storages[str(key)]
            (count,) = np.frombuffer(file.read(8), "<i8")
            storage.data = file.read(int(count) * storage.dtype.itemsize)
    return tensors


def _zipped(path: Path) -> dict[str, _Tensor]:
    storages: dict[str, _Storage] = {}
    with zipfile.ZipFile(path) as archive:
        (index,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        tensors: dict[str, _Tensor] = _Unpickler(io.BytesIO(archive.read(index)), storages).load()
        for storage in storages.values():
            storage.data = archive.read(index.removesuffix("data.pkl") + f"data/{storage.key}")
    return tensors
