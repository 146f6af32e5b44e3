"""What the front tells the engine so that it samples as a client means it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.front_modules import front_module

inputs = front_module("inputs")
prepare = front_module("prepare")
settings = front_module("settings")

SETTINGS = settings.Settings.from_config({"parameters": {"engine_model": {"string_value": "e"}}})


def told(**asked: Any) -> dict[str, Any]:
    """The sampling inputs that the engine gets, as plain numbers."""
    tensors = {name: np.array([[value]]) for name, value in asked.items()}
    sampling = prepare._sampling(inputs.read_request(tensors), SETTINGS)
    return {name: array.item() for name, array in sampling.items()}


@pytest.mark.parametrize(
    ("asked", "top_p"),
    [
        ({"temperature": 0.5}, 1.0),  # alone: TensorRT-LLM would take the likeliest token
        ({"temperature": 0.5, "top_p": 0.75}, 0.75),
        ({"temperature": 0.5, "top_k": 40}, None),
        ({"top_p": 0.5}, 0.5),
    ],
)
def test_what_is_sampled_is_drawn_anew_each_time(asked: dict[str, Any], top_p: float | None) -> None:
    first, second = told(**asked), told(**asked)
    assert first.get("runtime_top_p") == top_p
    assert first.pop("seed") != second.pop("seed")
    assert first == second


def test_a_seed_is_kept() -> None:
    assert told(temperature=0.5, seed=7)["seed"] == 7


@pytest.mark.parametrize(
    ("asked", "engine"),
    [
        ({}, {}),
        ({"temperature": 0.0}, {"runtime_top_k": 1}),
        ({"temperature": 0.5, "top_k": 1}, {"temperature": 0.5, "runtime_top_k": 1}),
        # as NVIDIA's own clients ask for the likeliest token
        (
            {"temperature": 1.0, "top_k": 1, "top_p": 0.0},
            {"temperature": 1.0, "runtime_top_k": 1, "runtime_top_p": 0.0},
        ),
        ({"temperature": 1.0, "beam_width": 2}, {"temperature": 1.0, "beam_width": 2}),
    ],
)
def test_what_is_not_sampled_gets_nothing_added(asked: dict[str, Any], engine: dict[str, Any]) -> None:
    assert told(**asked) == engine
