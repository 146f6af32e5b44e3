"""Input tensors of a Triton request, by name and by row of its batch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contract import INPUT_BY_NAME
from .jobs import RequestRefused

Tensors = Mapping[str, NDArray[Any]]


def check_inputs(tensors: Tensors) -> None:
    """Raises RequestRefused for an input that the contract does not have or that cannot be honoured."""
    for name, value in tensors.items():
        rule = INPUT_BY_NAME.get(name)
        if rule is None:
            raise RequestRefused(f"{name} is not an input of the tensorrtllm backend")
        rule.check(value)


def check_parameters(parameters: str) -> None:
    """Refuses what TensorRT-LLM's backend reads from a request's own parameters (a JSON object).

    ``request_type`` asks for one half of disaggregated serving.
    """
    if "request_type" in parameters:
        kind = json.loads(parameters).get("request_type", "")
        if kind not in ("", "context_and_generation"):
            raise RequestRefused(
                f"request_type {kind!r} cannot be honoured: one engine does both halves here"
            )


class Row:
    """The inputs of one row of a batch; a missing or empty input has its default.

    Args:
        tensors: with the batch dimension.
    """

    def __init__(self, tensors: Tensors, row: int, batch_size: int) -> None:
        self._tensors = tensors
        self._row = row
        self._batch_size = batch_size

    def array(self, name: str) -> NDArray[Any] | None:
        """An input without its batch dimension."""
        value = self._tensors.get(name)
        if value is None or value.size == 0:
            return None
        if value.shape[0] != self._batch_size:
            raise RequestRefused(
                f"{name} has {value.shape[0]} rows and input_ids {self._batch_size}; each input needs as many"
            )
        return np.asarray(value[self._row], value.dtype)

    def scalar(self, name: str, default: Any) -> Any:
        """An input of one value, as a Python object."""
        value = self.array(name)
        if value is None:
            return default
        if value.size != 1:
            raise RequestRefused(f"{name} has {value.size} values; it takes one")
        item = value.reshape(-1)[0]
        return item.item() if isinstance(item, np.generic) else item  # texts are plain bytes

    def number(self, name: str, default: float, *, low: float = -math.inf, high: float = math.inf) -> Any:
        """A scalar within bounds; refuses what is outside, infinite or no number."""
        value = self.scalar(name, default)
        if not low <= value <= high or not math.isfinite(value):
            bounds = [f"at least {low}"] if math.isfinite(low) else []
            bounds += [f"at most {high}"] if math.isfinite(high) else []
            raise RequestRefused(f"{name} is {value}; it must be {' and '.join(bounds) or 'a finite number'}")
        return value

    def text(self, name: str) -> str:
        """A scalar of UTF-8 bytes; empty if it is missing."""
        value: bytes = self.scalar(name, b"")
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RequestRefused(f"{name} is not UTF-8: {error}") from error
