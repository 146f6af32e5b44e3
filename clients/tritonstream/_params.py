"""What may be asked of a generation, and how each kind of model calls it."""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict

from . import _checks
from .errors import UsageError
from .options import ClientOptions

if TYPE_CHECKING:
    from .options import Degrade, Retry, Timeouts


_GUIDES: Final = ("json", "json_schema", "regex", "ebnf_grammar", "structural_tag")


@dataclass(frozen=True, slots=True)
class Guide:
    """A constraint that the whole answer must meet, where the engine was built with a guided decoder."""

    kind: str  # TensorRT-LLM's words: json, json_schema, regex, ebnf_grammar, structural_tag
    text: str

    def __post_init__(self) -> None:
        if self.kind not in _GUIDES:
            raise UsageError(f"a guide of kind {self.kind!r} is none; there are {', '.join(_GUIDES)}")
        _checks.text("a guide", self.text)
        if self.kind != "json" and not self.text:
            raise UsageError(f"the {self.kind} of a guide is empty")
        if self.kind in ("json_schema", "structural_tag"):
            try:
                json.loads(self.text)
            except ValueError as exc:
                raise UsageError(f"the {self.kind} of a guide is no JSON: {exc}") from None

    @classmethod
    def json(cls) -> Guide:
        """Any JSON value."""
        return cls("json", "")

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | str) -> Guide:
        if isinstance(schema, str):
            return cls("json_schema", schema)
        if not isinstance(schema, Mapping):
            raise UsageError(f"the schema is {schema!r}; it must be a mapping, or its JSON as text")
        try:
            return cls("json_schema", json.dumps(schema, allow_nan=False))
        except (TypeError, ValueError) as exc:
            raise UsageError(f"the schema cannot be written as JSON: {exc}") from exc

    @classmethod
    def regex(cls, pattern: str) -> Guide:
        return cls("regex", pattern)

    @classmethod
    def grammar(cls, ebnf: str) -> Guide:
        return cls("ebnf_grammar", ebnf)


class GenerateParams(TypedDict, total=False):
    """Keyword arguments of ``generate``, ``stream``, ``chat`` and ``many``.

    What the model, as deployed, cannot honour is refused with ``UnsupportedError``, never dropped. None
    counts as not given.

    Attributes:
        temperature, top_k, top_p: any of them samples (temperature=0 and top_k=1 do not); without them the
            likeliest token is taken.
        seed: of the sampling; without one each call draws anew.
        stop: texts that end the answer and are no part of it; they may span tokens.
        bad_words: texts that are not generated.
        n: independent sequences; see ``Completion.choices``.
        logprobs: also yield the log probabilities of the tokens, as ``Logprobs``.
        token_ids: also yield the ids of the tokens, as ``TokenIds``.
        perf_metrics: the engine's own clock, in ``Timings.server_ns``.
        embedding_bias: added to the logits of these words' tokens.
        lora: name (llmapi) or task id (engines) of an adapter that the server knows.
        guide: what the answer meets, such as ``Guide.json_schema(...)``.
        add_special_tokens: whether the tokenizer adds its BOS to a text; a chat template writes its own.
        inputs: any other inputs that the model declares, by their own names.
        request_id: on the wire and in logs; default: one that no other client draws.
        deadline_s: shorthand for ``timeouts.total_s``.
        degrade: what to fall back to, in order, where nothing came.
        traffic_class: under which the server's metrics count it; see ``ClientOptions``.
        headers: gRPC metadata, beside the client's.
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
    n: int
    logprobs: bool
    token_ids: bool
    perf_metrics: bool
    embedding_bias: Mapping[str, float]
    lora: str | int
    guide: Guide
    add_special_tokens: bool
    priority: int
    inputs: Mapping[str, Any]
    request_id: str
    timeouts: Timeouts
    deadline_s: float | None
    retry: Retry
    degrade: Sequence[Degrade]
    traffic_class: str
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


CARRIAGE: Final = frozenset(
    {"request_id", "timeouts", "deadline_s", "retry", "degrade", "traffic_class", "headers"}
)


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
    low, high = params.get("min_tokens"), params.get("max_tokens")
    if low is not None and high is not None and low > high:
        raise UsageError(f"min_tokens is {low}, above max_tokens={high}")


def check_options(options: Mapping[str, Any], transport: object) -> None:
    """Checks the names of a client's options, and what makes its transports.

    Raises:
        UsageError: for an unknown name (with the nearest one), and for what makes no transport.
    """
    check_carriage(options, ClientOptions.__annotations__)
    if transport is not None and not callable(transport):
        raise UsageError(f"transport is {transport!r}; it must be a function from host:port to a Transport")
    for item in options.get("channel_options") or ():
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise UsageError(f"channel_options holds {item!r}; it must be a list of (name, value)")


def check_carriage(params: Mapping[str, Any], known: Iterable[str]) -> None:
    """Checks keyword arguments by name and kind; None counts as not given.

    Raises:
        UsageError: for an unknown name, with the nearest known one, and for a value that is none.
    """
    known = list(known)
    for name, value in params.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise UsageError(f"unknown parameter {name!r}; {hint}")
        if value is not None and name in _KINDS:
            _KINDS[name](name, value)


_any_number: Final = _checks.number(-_checks.FLOAT32_MAX, _checks.FLOAT32_MAX, "a finite number")
_not_negative: Final = _checks.number(0.0, _checks.FLOAT32_MAX, "a finite number of at least 0")
_positive: Final = _checks.number(0.0, _checks.FLOAT32_MAX, "a finite number above 0", above=True)
_id: Final = _checks.whole(-1, _checks.INT32_MAX, "from 0 to 2^31 - 1, or -1 for none")
_several: Final = _checks.whole(1, 1024, "from 1 to 1024")
_KINDS: Final[dict[str, _checks.Check]] = {
    "max_tokens": _checks.whole(1, _checks.INT32_MAX, "from 1 to 2^31 - 1"),
    "min_tokens": _checks.whole(0, _checks.INT32_MAX, "from 0 to 2^31 - 1"),
    "temperature": _not_negative,
    "top_k": _checks.whole(0, _checks.INT32_MAX, "from 0 to 2^31 - 1"),
    "top_p": _checks.number(0.0, 1.0, "a number from 0 to 1"),
    "repetition_penalty": _positive,
    "presence_penalty": _any_number,
    "frequency_penalty": _any_number,
    "length_penalty": _any_number,
    "seed": _checks.whole(0, _checks.UINT64_MAX, "from 0 to 2^64 - 1"),
    "stop": _checks.texts,
    "bad_words": _checks.texts,
    "end_id": _id,
    "pad_id": _id,
    "beam_width": _several,
    "n": _several,
    "logprobs": _checks.flag,
    "token_ids": _checks.flag,
    "perf_metrics": _checks.flag,
    "add_special_tokens": _checks.flag,
    "embedding_bias": _checks.weights,
    "lora": _checks.adapter,
    "guide": _checks.instance(Guide, what="a Guide, such as Guide.json_schema({...})"),
    "priority": _checks.whole(0, _checks.INT32_MAX, "from 0 to 2^31 - 1"),
    "inputs": _checks.tensors,
    "outputs": _checks.names,
    "shared_memory": _checks.flag,
    "request_id": _checks.name_of,
    "traffic_class": _checks.label,
    "headers": _checks.headers,
    "deadline_s": _checks.seconds,
}


def as_strings(value: str | Sequence[str]) -> list[str]:
    """Returns one or several strings as a list."""
    return [value] if isinstance(value, str) else list(value)
