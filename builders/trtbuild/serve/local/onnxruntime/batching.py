"""Several requests in one session run, and the answers split again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, Any]
Run = Callable[[Sequence[str], Mapping[str, Any]], Sequence[Any]]  # output names, inputs → outputs


@dataclass(frozen=True)
class Ask:
    """One request: its inputs (with the batch dimension, where the model has one) and the outputs wanted."""

    inputs: Arrays
    outputs: tuple[str, ...]

    def shape_key(self) -> tuple[Any, ...]:
        """Equal for requests whose inputs can be stacked."""
        return tuple((name, array.shape[1:]) for name, array in sorted(self.inputs.items()))

    @property
    def rows(self) -> int:
        """Length of the batch dimension."""
        return len(next(iter(self.inputs.values())))


def answers(asks: Sequence[Ask], run: Run, *, batched: bool) -> list[Arrays | Exception]:
    """Runs requests in as few runs as their shapes allow.

    Args:
        run: the session; it may raise whatever it wants.
        batched: whether the first dimension is a batch; else every request runs alone.

    Returns:
        For each request its outputs, or the exception that it alone caused: requests of a run that fails
        are run again one by one.
    """
    results: list[Arrays | Exception] = [RuntimeError("not run")] * len(asks)
    for members in _groups(asks, batched):
        outcome = _run_together([asks[i] for i in members], run)
        if isinstance(outcome, Exception) and len(members) > 1:
            for i in members:
                alone = _run_together([asks[i]], run)
                results[i] = alone if isinstance(alone, Exception) else alone[0]
        else:
            for place, i in enumerate(members):
                results[i] = outcome if isinstance(outcome, Exception) else outcome[place]
    return results


def _groups(asks: Sequence[Ask], batched: bool) -> Iterator[list[int]]:
    if not batched:
        yield from ([i] for i in range(len(asks)))
        return
    groups: dict[Any, list[int]] = {}
    for i, ask in enumerate(asks):
        groups.setdefault(ask.shape_key(), []).append(i)
    yield from groups.values()


def _run_together(asks: Sequence[Ask], run: Run) -> list[Arrays] | Exception:
    names = sorted({name for ask in asks for name in ask.outputs})
    inputs = {
        name: asks[0].inputs[name] if len(asks) == 1 else np.concatenate([ask.inputs[name] for ask in asks])
        for name in asks[0].inputs
    }
    try:
        outputs = dict(zip(names, run(names, inputs), strict=True))
    except Exception as error:  # the session's word on these inputs
        return error
    if len(asks) == 1:
        return [outputs]
    rows = sum(ask.rows for ask in asks)
    for name, array in outputs.items():
        if array.ndim == 0 or len(array) != rows:
            return ValueError(
                f"output {name} has shape {list(array.shape)} for a batch of {rows}: its first dimension is "
                "no batch dimension, so max_batch_size must be 0"
            )
    stops = np.cumsum([ask.rows for ask in asks]).tolist()
    return [
        {name: outputs[name][stop - ask.rows : stop] for name in ask.outputs}
        for ask, stop in zip(asks, stops, strict=True)
    ]
