"""Seconds of one step: operations and bytes over a device's rates, and what the step costs besides.

    step = linear layers + experts + lm_head + attention + element-wise work + all-reduce + overhead

A matrix product that takes ``c`` on the arithmetic units and ``m`` on the memory takes ``(c^p + m^p)^(1/p)``:
their sum where p is 1, near their maximum where it is large. An engine that does not compile for fixed shapes
prepares its kernels anew when a step has another number of tokens than the one before it (``reshape_s``; so
OpenVINO's CPU nodes do). All terms work on numbers and on numpy arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trtbuild.plan.latency.work import ModelWork

Number = TypeVar("Number", float, NDArray[np.float64])


@dataclass(frozen=True)
class Rates:
    """What a device achieves with a model: rates are already multiplied by the fitted efficiencies.

    Overheads are those of an engine's flow; ``request_s`` passes between the client and the engine before a
    request's first token, outside of any step.
    """

    linear_ops_s: float
    expert_ops_s: float
    head_ops_s: float
    attention_ops_s: float
    memory_bytes_s: float
    kv_bytes_s: float
    roundness: float  # p above
    elementwise_bytes_per_width: float  # for each token, layer and element of the hidden width
    logits_bytes_per_entry: float  # for each sampled sequence and entry of the vocabulary
    reduce_s: float  # latency of one all-reduce
    reduce_bytes_s: float
    step_s: float
    layer_s: float
    sequence_s: float  # for each sequence in the step: bookkeeping, sampling, response
    request_s: float = 0.0
    prompt_s: float = 0.0  # for each prompt that ends in the step, where its taking in delays the step
    matrix_s: float = 0.0  # a step of several tokens: products of matrices instead of one with a vector
    reshape_s: float = 0.0  # a step of another number of tokens than the one before it


_RATES = (
    "linear_ops_s", "expert_ops_s", "head_ops_s", "attention_ops_s",
    "memory_bytes_s", "kv_bytes_s", "reduce_bytes_s",
)  # fmt: skip
_OVERHEADS = (
    "reduce_s", "step_s", "layer_s", "sequence_s",
    "prompt_s", "matrix_s", "reshape_s",
)  # fmt: skip


@dataclass(frozen=True)
class StepCost:
    """Step times of a model on a device: ``base_s``, the parts of attention, linear in cached tokens,
    ``rates.prompt_s`` for each prompt that ends in the step, and ``rates.reshape_s`` where its tokens are
    not as many as the last step's."""

    work: ModelWork
    rates: Rates

    def scaled(self, factor: float) -> StepCost:
        """Steps that take ``factor`` times as long."""
        slower = {name: getattr(self.rates, name) / factor for name in _RATES}
        slower |= {name: getattr(self.rates, name) * factor for name in _OVERHEADS}
        return StepCost(self.work, replace(self.rates, **slower))

    def base_s(self, tokens: Number, rows: Number) -> Number:
        """A step of ``tokens`` tokens of which ``rows`` end in a sampled token, without attention."""
        work, rates, p = self.work, self.rates, self.rates.roundness
        seconds = _product(
            work.dense_ops_per_token * tokens / rates.linear_ops_s, work.dense_bytes / rates.memory_bytes_s, p
        )
        if work.expert_bytes:
            # the share of experts that none of the tokens chose is not read
            read = work.expert_bytes * (1.0 - (1.0 - work.expert_share) ** tokens)
            seconds = seconds + _product(
                work.expert_ops_per_token * tokens / rates.expert_ops_s, read / rates.memory_bytes_s, p
            )
        seconds = seconds + _product(
            work.head_ops_per_row * rows / rates.head_ops_s, work.head_bytes / rates.memory_bytes_s, p
        )
        width_bytes = rates.elementwise_bytes_per_width * work.hidden * work.layers
        logits_bytes = rates.logits_bytes_per_entry * work.vocab
        seconds = seconds + (width_bytes * tokens + logits_bytes * rows) / rates.memory_bytes_s
        if work.tp > 1:
            # ring: each rank sends and receives 2 (tp - 1) / tp of the message; two all-reduces in a layer
            sent = 2.0 * (work.tp - 1) / work.tp * work.reduced_bytes_per_token * tokens
            seconds = seconds + 2 * work.layers * (rates.reduce_s + sent / rates.reduce_bytes_s)
        overhead = rates.step_s + rates.layer_s * work.layers
        return seconds + (rates.sequence_s * rows + rates.matrix_s * (tokens > 1) + overhead)

    @property
    def kv_token_s(self) -> float:
        """For each token in the cache of a sequence that decodes, layers without a window."""
        return self.work.kv_bytes_per_token / self.rates.kv_bytes_s

    @property
    def window_kv_token_s(self) -> float:
        return self.work.window_kv_bytes_per_token / self.rates.kv_bytes_s

    @property
    def pair_s(self) -> float:
        """For each pair of a prompt's token and a token that it attends to, layers without a window."""
        return self.work.attention_ops_per_pair / self.rates.attention_ops_s

    @property
    def window_pair_s(self) -> float:
        return self.work.window_attention_ops_per_pair / self.rates.attention_ops_s


def _product(compute_s: Number, memory_s: Number | float, p: float) -> Number:
    together: Number = (compute_s**p + memory_s**p) ** (1.0 / p)
    return together
