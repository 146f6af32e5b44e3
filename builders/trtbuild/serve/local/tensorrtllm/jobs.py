"""What the stub and the worker say to each other, pickled over one socket pair.

To the worker: Settings first, then Job and Cancel, and None at the end. From it: Loaded, then Progress;
Failed is its last word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


UNSUPPORTED = " [UNSUPPORTED]"  # ends the text of what no request can have from this engine, as it is set up


class RequestRefused(ValueError):
    """A request that cannot be served as it is asked for; the text is sent to the client."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Values are those of TensorRT-LLM's inputs after its defaults were applied."""

    greedy: bool = True
    temperature: float = 1.0
    top_k: int = 0  # 0: all tokens
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    seed: int = 0
    beam_width: int = 1
    beams_returned: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = True
    guide_type: str = ""
    guide: str = ""

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn by chance."""
        return not self.greedy and self.beam_width == 1

    @property
    def seeded(self) -> bool:
        """Whether the same tokens must come again for the same seed; 0 is what a request without one has."""
        return self.draws and self.seed != 0


@dataclass(frozen=True)
class Job:
    """One sequence (or one beam search) for the engine. A Triton request becomes one or several jobs."""

    key: int
    prompt: NDArray[np.int32]  # [n]
    max_new_tokens: int
    streaming: bool
    end_ids: tuple[int, ...]
    stop_words: tuple[tuple[int, ...], ...]
    sampling: Sampling
    log_probs: bool
    arrival_time_ns: int  # CLOCK_MONOTONIC


class Finish:
    """Why a job ended. ``None`` in an event means that it goes on."""

    STOP = "stop"  # an end id or a stop word
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class Times(NamedTuple):
    """CLOCK_MONOTONIC, nanoseconds."""

    arrival_ns: int
    first_scheduled_ns: int
    first_token_ns: int
    last_token_ns: int


class Event(NamedTuple):
    """New tokens of a job, its end, or both.

    ``beams``: new token ids of each returned beam (one unless it is a beam search).
    ``log_probs``: of the same shape, natural logarithms of the chosen tokens' probabilities; None if not
    asked for. ``cum_log_probs``: sum over the whole sequence so far, one a beam. ``times`` comes at the end.
    """

    key: int
    beams: list[list[int]]
    finish: str | None = None
    log_probs: list[list[float]] | None = None
    cum_log_probs: list[float] | None = None
    times: Times | None = None
    message: str = ""


class Gauges(NamedTuple):
    """The engine's own counters after a step."""

    timestamp_s: float
    iteration: int
    active: int  # being computed or waiting
    scheduled: int  # by the last step
    context: int  # have no token yet
    generation: int
    waiting: int  # not admitted yet
    used_blocks: int


class Loaded(NamedTuple):
    """The worker's first message: the engine is ready."""


class Failed(NamedTuple):
    """The worker's last message: why it cannot go on."""

    message: str


class Cancel(NamedTuple):
    key: int


class Progress(NamedTuple):
    """One message a step."""

    events: list[Event]
    gauges: Gauges | None
