"""A wish → the request that this model understands, and the decoder that reads its responses. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ._answers import Answer, ChunkAnswer, IdAnswer, RepeatedAnswer
from ._builder import Builder
from ._decode import Decoder
from ._params import BY_NAME, CARRIAGE, sampling_said
from ._put import input_of, put, put_word_list
from ._task import Built
from ._wish import Wish
from .errors import UnsupportedError, UsageError
from .models import Characters, ModelDescription, ModelKind

if TYPE_CHECKING:
    from ._codec import Codec
    from ._proto import Message


@dataclass(frozen=True, slots=True)
class GenerateTask:
    """A ``Task`` that generates text."""

    wish: Wish

    @property
    def operation(self) -> str:
        return "generate" if self.wish.messages is None else "chat"

    @property
    def params(self) -> Mapping[str, Any]:
        return self.wish.params

    def needs_codec(self, model: ModelDescription) -> bool:
        chat_here = self.wish.messages is not None and "messages" not in model.inputs
        return model.kind is ModelKind.ENGINE or chat_here or self.wish.client_template

    def shortened(self, max_tokens: int) -> GenerateTask:
        return GenerateTask(self.wish.shortened(max_tokens))

    def build(
        self,
        model: ModelDescription,
        request_id: str,
        *,
        stream: bool,
        timeout_ms: int | None,
        codec: Codec | None,
        endpoint: str,
    ) -> Built:
        return build(model, self.wish, request_id, stream=stream, timeout_ms=timeout_ms, codec=codec)


def build(
    model: ModelDescription,
    wish: Wish,
    request_id: str,
    *,
    stream: bool,
    timeout_ms: int | None = None,
    codec: Codec | None = None,
) -> Built:
    """Builds the request and its decoder.

    Args:
        model: the model as described.
        wish: what to generate.
        request_id: id on the wire.
        stream: whether text shall come as it is made; only decoupled models can.
        timeout_ms: what is left of the deadline, told to models that have such an input.
        codec: tokenizer of the model, for engines.

    Raises:
        UnsupportedError: the model cannot do what the wish says.
        UsageError: a value cannot be sent.
    """
    if model.kind in (ModelKind.OCR, ModelKind.OTHER):
        raise UnsupportedError(
            f"{model.name} generates no text that this client knows of; call it with infer() or ocr()"
        )
    # trtbuild's front gives several answers whole or not at all
    several = (
        model.kind is ModelKind.FRONT
        and max(wish.params.get("n") or 1, wish.params.get("beam_width") or 1) > 1
    )
    whole = not stream or several or (wish.at_once and model.characters is Characters.PER_CHUNK)
    builder = Builder(model, request_id, _stencil(model, not whole))
    input_ids = _put_prompt(builder, wish, codec)
    params = dict(wish.params)
    if model.kind not in (ModelKind.FRONT, ModelKind.LLMAPI):  # these two know what is meant
        added = sampling_said(params)
        params |= {name: value for name, value in added.items() if input_of(model, BY_NAME[name]) is not None}
    for name, value in sorted(params.items(), key=lambda item: item[0] == "token_ids"):  # that one last
        if value is None or name in CARRIAGE:
            continue
        put(builder, name, value, codec)
    if timeout_ms is not None and "timeout_ms" in model.inputs and "timeout_ms" not in builder.given:
        builder.put("timeout_ms", [min(timeout_ms, 2**31 - 1)])
    if model.kind is ModelKind.ENGINE and codec is not None:
        _put_ends(builder, codec)
    _check_length(builder)
    decoder = _decoder(model, wish, request_id, input_ids, codec, stream=not whole)
    return Built(builder.message, decoder, whole)


def _put_prompt(builder: Builder, wish: Wish, codec: Codec | None) -> tuple[int, ...] | None:
    """Adds the prompt; returns its ids if the model takes ids."""
    model, prompt, special = builder.model, wish.prompt, bool(wish.params.get("add_special_tokens", True))
    if wish.messages is not None:
        if "messages" in model.inputs and not wish.client_template:
            builder.put("messages", [_json("messages", wish.messages)])
            if wish.tools is not None:
                builder.put("tools", [_json("tools", wish.tools)])
            return None
        if codec is None:
            why = "client_template" if wish.client_template else f"{model.name} takes no chat messages"
            raise UnsupportedError(f"{why}: give the client tokenizer=FOLDER to render them here")
        prompt, special = codec.render(wish.messages, wish.tools), False  # a template writes BOS itself
    if model.kind is not ModelKind.ENGINE:
        if not isinstance(prompt, str):
            raise UnsupportedError(f"{model.name} takes text, not token ids")
        builder.put("text_input", [prompt])
        if not special and "add_special_tokens" in model.inputs:
            builder.put("add_special_tokens", [False])
        return None
    if isinstance(prompt, str):
        if codec is None:
            raise UnsupportedError(
                f"{model.name} is a bare engine: give the client tokenizer=FOLDER, or token ids as the prompt"
            )
        prompt = codec.encode(prompt, add_special_tokens=special)
    ids = tuple(prompt or ())
    if not ids:
        raise UsageError("the prompt has no tokens")
    builder.put("input_ids", ids)
    builder.put("input_lengths", [len(ids)])
    return ids


def _json(name: str, value: Sequence[Mapping[str, Any]]) -> str:
    try:
        return json.dumps(list(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise UsageError(f"{name} cannot be written as JSON: {exc}") from exc


_FLAGS: Final = (
    "exclude_input_in_output",
    "sampling_param_exclude_input_from_output",
    "return_finish_reason",
    "return_num_input_tokens",
    "return_num_output_tokens",
)
_OUTPUTS: Final = ("text_output", "finish_reason", "num_input_tokens", "num_output_tokens", "text_crc32")


def _stencil(model: ModelDescription, stream: bool) -> Builder:
    """What every request to this model says: how it is to answer, and with which outputs."""
    made: Builder | None = model.stencils.get(stream)
    if made is not None:
        return made
    made = Builder(model, "")
    if stream:
        made.flag("stream")
        made.flag("streaming")
        made.message.parameters["triton_enable_empty_final_response"].bool_param = True
    if (
        model.kind is ModelKind.FRONT
    ):  # does as the flags say by itself, and sends ids only when they are named
        for name in _OUTPUTS:
            if name in model.outputs:
                made.message.outputs.add(name=name)
    else:
        for name in _FLAGS:
            made.flag(name)
    model.stencils[stream] = made
    return made


def _check_length(builder: Builder) -> None:
    for name in ("max_tokens", "request_output_len"):
        spec = builder.model.inputs.get(name)
        if spec is not None and not spec.optional and name not in builder.given:
            raise UsageError(f"{builder.model.name} has no default length: give max_tokens")


def _put_ends(builder: Builder, codec: Codec) -> None:
    """Tells an engine all ids that end an answer: the first as ``end_id``, the others as stop words."""
    ends = codec.end_ids
    if ends and "end_id" in builder.model.inputs and "end_id" not in builder.given:
        builder.put("end_id", ends[:1])
        if "pad_id" in builder.model.inputs and "pad_id" not in builder.given:
            builder.put("pad_id", [codec.pad_id])
        if (
            len(ends) > 1
            and "stop_words_list" in builder.model.inputs
            and "stop_words_list" not in builder.given
        ):
            put_word_list(builder, "stop_words_list", [[id_] for id_ in ends[1:]])


def _decoder(
    model: ModelDescription,
    wish: Wish,
    request_id: str,
    input_ids: tuple[int, ...] | None,
    codec: Codec | None,
    *,
    stream: bool,
) -> Decoder:
    engine = model.kind is ModelKind.ENGINE
    alone = stream and model.characters is Characters.PER_CHUNK
    n = int(wish.params.get("n") or 1)
    # trtbuild's front matches stop strings exactly. Others match tokens, miss some and leave them in.
    stops = [] if model.kind is ModelKind.FRONT else wish.stops
    echo = input_ids if engine and not stream and _echoes(model) else None
    ends = frozenset(codec.end_ids) if codec is not None else frozenset()
    if "end_id" in wish.params:
        ends |= {wish.params["end_id"]}

    def make(index: int) -> Answer:
        if engine:
            return IdAnswer(index, codec.text_stream(stops) if codec else None, ends, echo)
        return (RepeatedAnswer if model.repeats else ChunkAnswer if alone else Answer)(index, stops)

    return Decoder(
        request_id,
        make,
        n=n,
        engine=engine,
        plain=not (engine or model.repeats or stops or n > 1),
        want_ids=bool(wish.params.get("token_ids")),
        max_tokens=wish.params.get("max_tokens"),
        prompt_tokens=None if input_ids is None else len(input_ids),
        checked=model.kind is ModelKind.FRONT and "text_crc32" in model.outputs,
    )


def _echoes(model: ModelDescription) -> bool:
    """Whether a whole answer of this engine begins with the prompt (TensorRT-LLM's default)."""
    told = "exclude_input_in_output" in model.inputs  # then the request says true
    return not told and model.parameters.get("exclude_input_in_output", "").lower() not in ("true", "1")


def stop_request(engine: ModelDescription, request_id: str) -> Message:
    """The request that ends another one by its id; an engine demands the other inputs and ignores them."""
    builder = Builder(engine, request_id)
    builder.put("input_ids", [0])
    builder.put("input_lengths", [1])
    builder.put("request_output_len", [1])
    builder.put("stop", [True])
    return builder.message
