"""Triton's Python backend module, as much of it as a model that answers at once uses."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest


class Tensor:
    def __init__(self, name: str, array: Any) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Any:
        return self._array


class TritonError(Exception):
    INVALID_ARG = 3

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Logger:
    errors: ClassVar[list[str]] = []

    @classmethod
    def log_error(cls, message: str) -> None:
        cls.errors.append(message)


class InferenceResponse:
    def __init__(self, output_tensors: list[Tensor], error: TritonError | None = None) -> None:
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}
        self.error = error


class Request:
    """One request: texts as lists of str, all else as arrays."""

    def __init__(self, outputs: list[str], **inputs: Any) -> None:
        self._outputs = outputs
        self._tensors = [Tensor(name, _array(value)) for name, value in inputs.items()]

    def inputs(self) -> list[Tensor]:
        return self._tensors

    def requested_output_names(self) -> list[str]:
        return self._outputs


def _array(value: Any) -> Any:
    rows = np.array(value)
    if rows.dtype.kind == "U":
        return np.char.encode(rows, "utf-8").astype(np.object_)
    if rows.dtype.kind == "S":
        return rows.astype(np.object_)
    return rows.astype(np.float32) if rows.dtype.kind == "f" else rows.astype(np.int32)


def load_model(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, parameters: Mapping[str, str]
) -> Any:
    """A model.py of ``folder``/``name``/1, initialised as Triton does it."""
    module = ModuleType("triton_python_backend_utils")
    module.Tensor, module.TritonError, module.InferenceResponse = Tensor, TritonError, InferenceResponse  # type: ignore[attr-defined]
    module.Logger = Logger  # type: ignore[attr-defined]
    Logger.errors = []
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys, "path", [*sys.path])  # what the model adds goes again
    monkeypatch.delitem(sys.modules, "tritontext", raising=False)
    package = ModuleType(f"{name}_version_1")  # Triton imports the version's folder as a package
    package.__path__ = [str(folder / name / "1")]
    for known in [key for key in sys.modules if key.split(".")[0] == package.__name__]:
        del sys.modules[known]  # of another test's folder
    monkeypatch.setitem(sys.modules, package.__name__, package)
    model = importlib.import_module(f"{package.__name__}.model").TritonPythonModel()
    config = {"parameters": {key: {"string_value": value} for key, value in parameters.items()}}
    args = {"model_config": json.dumps(config), "model_repository": str(folder / name), "model_version": "1"}
    model.initialize(args)
    return model
