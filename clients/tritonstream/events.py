"""What a stream yields, and what it adds up to. Plain frozen data; nothing here does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length", "cancelled", "deadline", "unknown"]
"""``unknown``: the model does not tell, and the token count that would settle it is not known either."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text to append. Never empty; never a part of a character."""

    text: str
    index: int = 0  # which of the ``n`` sequences


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Ids of tokens that were made since the last event of this kind."""

    ids: tuple[int, ...]
    index: int = 0


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural-log probabilities of the tokens chosen since the last event of this kind."""

    values: tuple[float, ...]
    index: int = 0
    cumulative: float | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """A sequence ended."""

    reason: FinishReason
    index: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts over all sequences; None where the model does not tell and they cannot be counted."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds as the client saw them, from the call to ``generate`` or the first pull of a stream.

    ``server_ns`` holds the engine's own clock (``arrival_time_ns`` and the like) where
    ``perf_metrics=True`` was asked and the model has it.
    """

    first_token_s: float | None
    total_s: float
    responses: int  # messages that carried text, ids or log-probabilities
    longest_gap_s: float  # between two such messages, while the reader was waiting
    server_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tensors:
    """Outputs of one response to ``infer``, as arrays by name."""

    values: Mapping[str, Any]


Event = TextDelta | TokenIds | Logprobs | Finish | Usage | Timings | Tensors


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an answer came from."""

    model: str
    endpoint: str
    request_id: str
    attempt: int = 0  # retries that were needed
    step: int = 0  # 0: as asked; k: the k-th step of the degrade chain
    step_name: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of ``n`` sequences."""

    index: int
    text: str
    finish_reason: FinishReason | None  # None: still running
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    cumulative_logprob: float | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer so far, or whole once ``finish_reason`` is set."""

    choices: tuple[Choice, ...]
    usage: Usage
    timings: Timings | None
    origin: Origin | None

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.choices[0].finish_reason

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Ids of the first sequence; empty unless ``token_ids=True`` or the model deals in ids."""
        return self.choices[0].token_ids

    @property
    def logprobs(self) -> tuple[float, ...]:
        return self.choices[0].logprobs

    @property
    def degraded(self) -> bool:
        """True if the answer came from a later step of the degrade chain than the first wish."""
        return self.origin is not None and self.origin.step > 0
