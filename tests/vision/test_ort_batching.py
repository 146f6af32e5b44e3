from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.serve.local.onnxruntime.batching import Ask, answers


class Doubling:
    """A session with one input x and the outputs 2x and the sum of each row; it refuses negative numbers."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, names: Sequence[str], inputs: Mapping[str, Any]) -> Sequence[Any]:
        x = inputs["x"]
        self.batches.append(len(x))
        if (x < 0).any():
            raise RuntimeError("negative")
        return [{"double": 2 * x, "sum": x.sum(axis=1)}[name] for name in names]


def ask(values: Any, *outputs: str) -> Ask:
    return Ask({"x": np.array(values, np.float32)}, outputs or ("double", "sum"))


sizes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.booleans())  # rows, columns, whether it fails


@given(st.lists(sizes, max_size=8), st.booleans())
def test_every_request_gets_its_own_answer(requests: list[tuple[int, int, bool]], batched: bool) -> None:
    asks = [
        ask(np.full((rows, columns), -1.0 if fails else float(i)), "sum")
        for i, (rows, columns, fails) in enumerate(requests)
    ]
    results = answers(asks, Doubling(), batched=batched)
    for i, ((rows, columns, fails), result) in enumerate(zip(requests, results, strict=True)):
        if fails:
            assert isinstance(result, RuntimeError)
        else:
            assert not isinstance(result, Exception)
            np.testing.assert_array_equal(result["sum"], np.full(rows, float(i) * columns))


def test_equal_shapes_are_one_run() -> None:
    session = Doubling()
    answers([ask([[1, 2]]), ask([[3, 4], [5, 6]]), ask([[7, 8]], "sum")], session, batched=True)
    assert session.batches == [4]


def test_without_a_batch_dimension_each_runs_alone() -> None:
    session = Doubling()
    answers([ask([[1, 2]]), ask([[3, 4]])], session, batched=False)
    assert session.batches == [1, 1]


def test_an_output_without_batch_dimension_is_said() -> None:
    def whole(names: Sequence[str], inputs: Mapping[str, Any]) -> Sequence[Any]:
        return [inputs["x"].sum(keepdims=True)[0]]

    alone, *_ = answers([ask([[1, 2]], "sum")], whole, batched=True)
    assert not isinstance(alone, Exception)
    together = answers([ask([[1, 2], [1, 2]], "sum"), ask([[3, 4]], "sum")], whole, batched=True)
    assert [isinstance(result, dict) for result in together] == [True, True]  # each was run alone


@pytest.mark.parametrize("outputs", [("double",), ("sum",), ("sum", "double")])
def test_only_what_is_wanted_is_answered(outputs: tuple[str, ...]) -> None:
    first, second = answers([ask([[1, 2]], *outputs), ask([[3, 4]])], Doubling(), batched=True)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert set(first) == set(outputs)
    assert set(second) == {"double", "sum"}
