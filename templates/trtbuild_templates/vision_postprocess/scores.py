"""Numbers of a network to probabilities, and the best of them."""

from __future__ import annotations

from typing import Any

import numpy as np


def sigmoid(values: Any) -> Any:
    """1 / (1 + e^-x), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(values, np.float32)))


def softmax(values: Any) -> Any:
    """Along the last axis."""
    shifted = np.exp(values - values.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def activated(values: Any, activation: str) -> Any:
    """Values in float32 after ``none``, ``softmax`` or ``sigmoid``."""
    values = np.asarray(values, np.float32)
    if activation == "softmax":
        return softmax(values)
    return sigmoid(values) if activation == "sigmoid" else values


def best(scores: Any, count: int) -> tuple[Any, Any]:
    """The highest ``count`` of scores [n, classes]: classes and scores [n, count], best first; of equal ones
    the lower class first."""
    ids = np.argsort(-scores, axis=-1, kind="stable")[:, :count]
    return ids, np.take_along_axis(scores, ids, axis=-1)
