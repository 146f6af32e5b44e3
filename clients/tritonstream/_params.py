"""What may be asked of a generation, and how each kind of model calls it."""

from __future__ import annotations

import difflib
import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict

from .errors import UsageError

if TYPE_CHECKING:
    from .options import Degrade, Retry, Timeouts


@dataclass(frozen=True, slots=True)
class Guide:
    """A constraint that the whole answer must meet, where the engine was built with a guided decoder."""

    kind: str  # TensorRT-LLM's words: json, json_schema, regex, ebnf_grammar, structural_tag
    text: str

    @classmethod
    def json(cls) -> Guide:
        """Any JSON value."""
        return cls("json", "")

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | str) -> Guide:
        return cls("json_schema", schema if isinstance(schema, str) else json.dumps(schema))

    @classmethod
    def regex(cls, pattern: str) -> Guide:
        return cls("regex", pattern)

    @classmethod
    def grammar(cls, ebnf: str) -> Guide:
        return cls("ebnf_grammar", ebnf)


class GenerateParams(TypedDict, total=False):
    """Keyword arguments of ``generate``, ``stream``, ``chat`` and ``many``.

    What the model, as deployed, cannot honour is refused with ``UnsupportedError``, never dropped. Any other
    input that the model declares may be given by its own name through ``inputs``.
    """

    max_tokens: int
    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    length_penalty: float
    seed: int
    stop: str | Sequence[str]
    bad_words: Sequence[str]
    end_id: int
    pad_id: int
    beam_width: int
    n: int  # independent sequences
    logprobs: bool
    token_ids: bool  # also yield the ids of the tokens
    perf_metrics: bool  # the engine's own clock, in Timings.server_ns
    embedding_bias: Mapping[str, float]  # added to the logits of these words' tokens
    lora: str | int  # name (llmapi) or task id (engines) of an adapter that the server knows
    guide: Guide
    add_special_tokens: bool
    priority: int
    inputs: Mapping[str, Any]
    # How the request is carried out:
    request_id: str
    timeouts: Timeouts
    deadline_s: float | None  # shorthand for timeouts.total_s
    retry: Retry
    degrade: Sequence[Degrade]
    headers: Mapping[str, str]


class InferParams(TypedDict, total=False):
    """Keyword arguments of ``infer``, ``ocr``, ``classify``, ``detect``, ``segment`` and ``embed``."""

    outputs: Sequence[str]  # names of those that are wanted; default all
    shared_memory: bool  # send inputs through /dev/shm; for servers on this machine that allow it
    priority: int  # for models with priority levels; 1 is the highest
    request_id: str
    timeouts: Timeouts
    deadline_s: float | None
    retry: Retry
    headers: Mapping[str, str]


CARRIAGE: Final = frozenset({"request_id", "timeouts", "deadline_s", "retry", "degrade", "headers"})


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter. The names are alternatives, newest first; the model's config says which one it has.

    ``neutral`` is the value without effect: it may be given to a model that lacks the parameter.
    """

    name: str
    text: tuple[str, ...]  # fronts, ensembles, BLS
    llmapi: tuple[str, ...]
    engine: tuple[str, ...]
    neutral: Any = None


def _row(
    name: str,
    *,
    text: str | None = None,
    llmapi: str | None = None,
    engine: str | None = None,
    neutral: Any = None,
) -> Row:
    text = name if text is None else text
    engine = text if engine is None else engine
    llmapi = f"sampling_param_{name}" if llmapi is None else llmapi
    return Row(name, tuple(text.split()), tuple(llmapi.split()), tuple(engine.split()), neutral)


# Names: NVIDIA's templates of TensorRT-LLM 0.5 to 1.2.1 (min_length and random_seed until 0.19) and llmapi.
ROWS: Final = (
    _row("max_tokens", engine="request_output_len"),
    _row("min_tokens", text="min_tokens min_length", neutral=0),
    _row("temperature"),
    _row("top_k", engine="runtime_top_k"),
    _row("top_p", engine="runtime_top_p", neutral=1.0),
    _row("repetition_penalty", neutral=1.0),
    _row("presence_penalty", neutral=0.0),
    _row("frequency_penalty", neutral=0.0),
    _row("length_penalty", engine="len_penalty"),
    _row("seed", text="seed random_seed"),
    _row("end_id"),
    _row("pad_id"),
    _row("beam_width", neutral=1),
    _row("n", text="num_return_sequences", neutral=1),
    _row("logprobs", text="return_log_probs", llmapi="return_cumulative_logprob", neutral=False),
    _row(
        "perf_metrics", text="return_perf_metrics", neutral=False, llmapi="sampling_param_return_perf_metrics"
    ),
    _row("stop", text="stop_words", engine=""),
    _row("bad_words", llmapi="sampling_param_bad", engine=""),
    _row("add_special_tokens", llmapi="sampling_param_add_special_tokens", engine=""),
)
BY_NAME: Final = {row.name: row for row in ROWS}


def sampling_said(params: Mapping[str, Any]) -> dict[str, Any]:
    """What must be added for TensorRT-LLM's executor to sample as asked.

    Without top_k and top_p it takes the likeliest token at any temperature, and without a seed it draws the
    same for every equal request: its defaults are 0 for all three (layers/defaultDecodingParams.h).
    """
    added: dict[str, Any] = {}
    top_k, top_p = params.get("top_k"), params.get("top_p")
    if (params.get("beam_width") or 1) > 1 or params.get("temperature") == 0 or top_k == 1:
        return added
    if params.get("temperature") is not None and top_k is None and top_p is None:
        added["top_p"] = top_p = 1.0
    if params.get("seed") is None and (top_k or top_p):
        added["seed"] = random.getrandbits(63)
    return added


def check(params: Mapping[str, Any]) -> None:
    """Checks what can be checked without knowing the model.

    Raises:
        UsageError: for an unknown name (with the nearest one) and for values that no engine takes.
    """
    check_carriage(params, GenerateParams.__annotations__)
    for name, (low, high, what) in _RANGES.items():
        value = params.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise UsageError(f"{name} is {value!r}; it must be {what}")
        if not low <= value <= high:
            raise UsageError(f"{name} is {value!r}; it must be {what}")
        if what.startswith("a whole") and not isinstance(value, int):
            raise UsageError(f"{name} is {value!r}; it must be {what}")


def check_carriage(params: Mapping[str, Any], known: Iterable[str]) -> None:
    """Checks the names of keyword arguments.

    Raises:
        UsageError: for an unknown one, with the nearest known one.
    """
    known = list(known)
    for name in params:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise UsageError(f"unknown parameter {name!r}; {hint}")


_INT32: Final = 2**31 - 1
_FLOAT32_MAX: Final = 3.4e38
_RANGES: Final[dict[str, tuple[float, float, str]]] = {
    "max_tokens": (1, _INT32, "a whole number from 1 to 2^31 - 1"),
    "min_tokens": (0, _INT32, "a whole number from 0 to 2^31 - 1"),
    "n": (1, 1024, "a whole number from 1 to 1024"),
    "beam_width": (1, 1024, "a whole number from 1 to 1024"),
    "top_k": (0, _INT32, "a whole number from 0 to 2^31 - 1"),
    "top_p": (0.0, 1.0, "a number from 0 to 1"),
    "temperature": (0.0, _FLOAT32_MAX, "a finite number of at least 0"),
    "repetition_penalty": (0.0, _FLOAT32_MAX, "a finite number of at least 0"),
    "seed": (0, 2**64 - 1, "a whole number from 0 to 2^64 - 1"),
}


def as_strings(name: str, value: str | Sequence[str]) -> list[str]:
    """Returns one or several strings as a list; empty ones are dropped, as NVIDIA's clients mean them.

    Raises:
        UsageError: for anything that is not text.
    """
    if not isinstance(value, (str, Iterable)):
        raise UsageError(f"{name} takes strings; {value!r} is {type(value).__name__}")
    items = [value] if isinstance(value, str) else list(value)
    for item in items:
        if not isinstance(item, str):
            raise UsageError(f"{name} takes strings; {item!r} is {type(item).__name__}")
    return [item for item in items if item]
