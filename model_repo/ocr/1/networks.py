"""The networks behind the front, called as models of the same server (BLS, one response a request).

Lines go out one a request, ordered by width: Triton's dynamic batcher merges equal shapes, of one picture
and of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from trtbuild_templates.faults import told
else:
    from .faults import told


_MOST_CALLS = 32  # threads of the Python backend's pool for one instance, each held by a call


class NetworkError(RuntimeError):
    """A network gave no answer; the message names it."""


class Cancelled(Exception):
    """Whoever asked has left."""


@dataclass(frozen=True)
class Network:
    """One network as a model of the server."""

    model: str
    input: str
    outputs: tuple[str, ...]
    max_batch_size: int

    @classmethod
    def of(cls, parameters: Mapping[str, str], role: str) -> Network:
        """The network of a role, from the model's parameters.

        Raises:
            KeyError: a parameter is missing.
        """
        return cls(
            model=parameters[f"{role}_model"],
            input=parameters[f"{role}_input"],
            outputs=tuple(parameters[f"{role}_outputs"].split(",")),
            max_batch_size=int(parameters[f"{role}_max_batch_size"]),
        )

    def __call__(self, batch: Any) -> list[Any]:
        """The network's outputs for a batch.

        Raises:
            NetworkError: if it cannot be reached or refuses.
        """
        request = pb_utils.InferenceRequest(
            model_name=self.model,
            requested_output_names=list(self.outputs),
            inputs=[pb_utils.Tensor(self.input, np.ascontiguousarray(batch))],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        response = request.exec()
        if response.has_error():
            message = response.error().message()
            raise NetworkError(told(f"the network {self.model} failed", message, pb_utils))
        return [pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in self.outputs]


class TritonNetworks:
    """The three networks of the reader, for one picture at a time.

    ``cancelled`` is asked before each step, so that a picture nobody waits for holds no network.
    """

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._det, self._cls, self._rec = (Network.of(parameters, role) for role in ("det", "cls", "rec"))
        # Twice a batch: one runs while the next one gathers.
        calls = min(_MOST_CALLS, 2 * self._rec.max_batch_size)
        self._pool = ThreadPoolExecutor(calls, thread_name_prefix="network")
        self.cancelled: Callable[[], bool] = lambda: False

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()

    def probability(self, pixels: Any) -> Any:
        """See `reader.Networks`."""
        self._go_on()
        return self._det(pixels)[0][0, 0]

    def upside_down(self, lines: Sequence[Any]) -> Any:
        """See `reader.Networks`."""
        self._go_on()
        batches = [np.stack(part) for part in _parts(lines, self._cls.max_batch_size)]
        return np.concatenate([outputs[0][:, 1] for outputs in self._pool.map(self._cls, batches)])

    def labels(self, lines: Sequence[Any]) -> Sequence[tuple[Any, Any]]:
        """See `reader.Networks`."""
        self._go_on()
        order = sorted(range(len(lines)), key=lambda i: int(lines[i].shape[-1]))
        found: list[Any] = [None] * len(lines)
        results = self._pool.map(self._rec, [lines[i][np.newaxis] for i in order])
        for i, (labels, scores) in zip(order, results, strict=True):
            found[i] = labels[0], scores[0]
        return found

    def _go_on(self) -> None:
        if self.cancelled():
            raise Cancelled


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
