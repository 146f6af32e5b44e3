"""A wish → the ``ModelInferRequest`` that this model understands. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Union

from . import _tensors
from ._params import BY_NAME, CARRIAGE, Guide, Row, as_strings, check
from .errors import UnsupportedError, UsageError
from .models import ModelDescription, ModelKind, TensorSpec

if TYPE_CHECKING:
    from ._proto import Message

Prompt = Union[str, Sequence[int]]
Messages = Sequence[Mapping[str, Any]]


class Codec(Protocol):
    """What a bare engine needs on the client's side: text ↔ token ids of its model."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def render(self, messages: Messages) -> str: ...

    def bias(self, words: Mapping[str, float]) -> list[float]: ...

    @property
    def end_ids(self) -> tuple[int, ...]: ...

    def text_stream(self, stops: Sequence[str]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Wish:
    """What the caller wants generated, whichever model does it."""

    prompt: Prompt | None
    messages: Messages | None
    params: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] | None = None
    client_template: bool = False  # render messages here although the model could

    def __post_init__(self) -> None:
        check(self.params)
        if self.messages is not None and not self.messages:
            raise UsageError("messages is empty; give at least one {'role': ..., 'content': ...}")
        if isinstance(self.prompt, str) and not self.prompt:
            raise UsageError("the prompt is empty")

    def shortened(self, max_tokens: int) -> Wish:
        """The same with at most ``max_tokens``."""
        smaller = min(max_tokens, self.params.get("max_tokens", max_tokens))
        return replace(self, params={**self.params, "max_tokens": smaller})

    @property
    def stops(self) -> list[str]:
        return as_strings("stop", self.params.get("stop", ()))


@dataclass(frozen=True, slots=True)
class Built:
    """A request and what is known of it when its responses are read."""

    message: Message
    input_ids: tuple[int, ...] | None  # of a bare engine
    max_tokens: int | None


class Builder:
    """Fills one request for one model."""

    def __init__(self, model: ModelDescription, request_id: str) -> None:
        from ._proto import service_pb2

        self.model = model
        self.message = service_pb2.ModelInferRequest(model_name=model.name, id=request_id)

    def put(self, name: str, values: Sequence[Any]) -> None:
        """Adds an input of flat values, shaped as the model declares it."""
        spec = self.model.inputs[name]
        self._add(spec, self._shape(spec, len(values)), _tensors.pack(name, spec.dtype, values))

    def put_any(self, name: str, value: Any) -> None:
        """Adds an input given by the model's own name: a scalar, a list, or an array of its full shape."""
        spec = self.model.inputs.get(name)
        if spec is None:
            raise UnsupportedError(
                f"{self.model.name} has no input {name!r}; it has {', '.join(self.model.inputs)}"
            )
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            shape = tuple(value.shape)
            if self.model.max_batch_size and len(shape) == len(spec.dims):
                shape = (1, *shape)
            self._add(spec, shape, _tensors.from_array(name, spec.dtype, value))
        elif isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            self.put(name, [value])
        else:
            self.put(name, value)

    def put_first(self, row: Row, names: Sequence[str], values: Sequence[Any], given: Any) -> None:
        """Adds a parameter under the first of its names that the model has."""
        for name in names:
            if name in self.model.inputs:
                self.put(name, values)
                return
        if given == row.neutral and row.neutral is not None:
            return
        raise UnsupportedError(
            f"{self.model.name} ({self.model.kind.value}) has no input for {row.name!r}"
            + (f" (looked for {', '.join(names)})" if names else "")
        )

    def flag(self, name: str, value: bool = True) -> bool:
        """Sets a BOOL input where the model has it."""
        if name not in self.model.inputs:
            return False
        self.put(name, [value])
        return True

    def _add(self, spec: TensorSpec, shape: Sequence[int], raw: bytes) -> None:
        tensor = self.message.inputs.add(name=spec.name, datatype=spec.dtype)
        tensor.shape.extend(shape)
        self.message.raw_input_contents.append(raw)

    def _shape(self, spec: TensorSpec, count: int) -> tuple[int, ...]:
        dims = list(spec.dims) or [1]
        fixed = math.prod(size for size in dims if size > 0)
        if -1 in dims:
            free = dims.index(-1)
            dims = [1 if size == -1 else size for size in dims]
            dims[free] = count // fixed
        if math.prod(dims) != count:
            raise UsageError(
                f"input {spec.name!r} of {self.model.name} has shape {list(spec.dims)}; {count} values do not fit"
            )
        return (1, *dims) if self.model.max_batch_size else tuple(dims)


def build(
    model: ModelDescription,
    wish: Wish,
    request_id: str,
    *,
    stream: bool,
    timeout_ms: int | None = None,
    codec: Codec | None = None,
) -> Built:
    """Builds the request.

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
    builder = Builder(model, request_id)
    ids = _put_prompt(builder, wish, codec)
    for name, value in wish.params.items():
        if value is None or name in CARRIAGE:
            continue
        row = BY_NAME.get(name)
        if row is not None:
            _put_row(builder, row, value)
        else:
            _SPECIAL[name](builder, value, codec)
    _put_mode(builder, stream=stream, timeout_ms=timeout_ms)
    _put_outputs(builder, wish)
    return Built(builder.message, ids, wish.params.get("max_tokens"))


def _put_prompt(builder: Builder, wish: Wish, codec: Codec | None) -> tuple[int, ...] | None:
    model, prompt, special = builder.model, wish.prompt, True
    if wish.messages is not None:
        if "messages" in model.inputs and not wish.client_template:
            builder.put("messages", [json.dumps(list(wish.messages), ensure_ascii=False)])
            if wish.tools is not None:
                builder.put_any("tools", json.dumps(list(wish.tools), ensure_ascii=False))
            return None
        if codec is None:
            raise UnsupportedError(
                f"{model.name} takes no chat messages, so the client must render them: give it tokenizer=PATH"
            )
        prompt, special = codec.render(wish.messages), False  # templates write BOS themselves
    if prompt is None:
        raise UsageError("give a prompt or messages")
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
                f"{model.name} is a bare engine: give the client tokenizer=PATH, or token ids as the prompt"
            )
        prompt = codec.encode(
            prompt, add_special_tokens=special and wish.params.get("add_special_tokens", True)
        )
    ids = tuple(prompt)
    if not ids:
        raise UsageError("the prompt has no tokens")
    builder.put("input_ids", ids)
    builder.put("input_lengths", [len(ids)])
    return ids


def _put_row(builder: Builder, row: Row, value: Any) -> None:
    kind = builder.model.kind
    names = row.llmapi if kind is ModelKind.LLMAPI else row.engine if kind is ModelKind.ENGINE else row.text
    if row.name in ("stop", "bad_words"):
        strings = as_strings(row.name, value)
        if not strings or (kind is ModelKind.ENGINE and row.name == "stop"):
            return  # an engine's stop strings are matched here, on the text
        builder.put_first(row, names, strings, value)
    elif row.name == "add_special_tokens" and kind is ModelKind.ENGINE:
        return  # done while encoding
    else:
        builder.put_first(row, names, [value], value)


def _put_guide(builder: Builder, value: Guide, codec: Codec | None) -> None:
    if "guided_decoding_guide" not in builder.model.inputs:
        raise UnsupportedError(
            f"{builder.model.name} has no structured output (no input guided_decoding_guide)"
        )
    builder.put("guided_decoding_guide_type", [value.kind])
    builder.put("guided_decoding_guide", [value.text])


def _put_bias(builder: Builder, value: Mapping[str, float], codec: Codec | None) -> None:
    model = builder.model
    if "embedding_bias_words" in model.inputs:
        builder.put("embedding_bias_words", list(value))
        builder.put("embedding_bias_weights", list(value.values()))
    elif "embedding_bias" in model.inputs and codec is not None:
        builder.put("embedding_bias", codec.bias(value))
    else:
        raise UnsupportedError(
            f"{model.name} takes no embedding bias" + ("" if codec else " without tokenizer=PATH")
        )


def _put_lora(builder: Builder, value: str | int, codec: Codec | None) -> None:
    name = "lora_name" if isinstance(value, str) else "lora_task_id"
    if name not in builder.model.inputs:
        other = "a task id (a number)" if "lora_task_id" in builder.model.inputs else "none"
        raise UnsupportedError(
            f"{builder.model.name} has no input {name} for LoRA {value!r}; it takes {other}"
        )
    builder.put(name, [value])


def _put_token_ids(builder: Builder, value: bool, codec: Codec | None) -> None:
    if value and builder.model.kind is not ModelKind.ENGINE and "token_ids" not in builder.model.outputs:
        raise UnsupportedError(f"{builder.model.name} does not give token ids")


def _put_priority(builder: Builder, value: int, codec: Codec | None) -> None:
    raise UnsupportedError(
        f"priority={value!r} would do nothing: Triton's priorities order its own queue, and a language model's "
        "requests leave it at once; TensorRT-LLM's executor does not see them"
    )


def _put_inputs(builder: Builder, value: Mapping[str, Any], codec: Codec | None) -> None:
    for name, item in value.items():
        builder.put_any(name, item)


_SPECIAL = {
    "guide": _put_guide,
    "embedding_bias": _put_bias,
    "lora": _put_lora,
    "token_ids": _put_token_ids,
    "priority": _put_priority,
    "inputs": _put_inputs,
}


def _put_mode(builder: Builder, *, stream: bool, timeout_ms: int | None) -> None:
    model = builder.model
    if "max_tokens" in model.inputs and not model.inputs["max_tokens"].optional:
        _require(builder, "max_tokens")
    if model.kind is ModelKind.ENGINE:
        _require(builder, "request_output_len")
    if stream:
        builder.flag("stream") or builder.flag("streaming")
        builder.message.parameters["triton_enable_empty_final_response"].bool_param = True
    builder.flag("exclude_input_in_output") or builder.flag("sampling_param_exclude_input_from_output")
    builder.flag("return_finish_reason")
    builder.flag("return_num_input_tokens")
    builder.flag("return_num_output_tokens")
    if timeout_ms is not None and "timeout_ms" in model.inputs:
        builder.put("timeout_ms", [min(timeout_ms, 2**31 - 1)])


def _require(builder: Builder, name: str) -> None:
    if not any(tensor.name == name for tensor in builder.message.inputs):
        raise UsageError(f"{builder.model.name} has no default length: give max_tokens")


_ALWAYS = ("text_output", "finish_reason", "num_input_tokens", "num_output_tokens")


def _put_outputs(builder: Builder, wish: Wish) -> None:
    """Names the outputs where the model would else leave some out or send more than was asked for."""
    outputs = builder.model.outputs
    if builder.model.kind is not ModelKind.FRONT:
        return
    wanted = [name for name in _ALWAYS if name in outputs]
    if wish.params.get("token_ids"):
        wanted.append("token_ids")
    if wish.params.get("logprobs"):
        wanted += [name for name in ("cum_log_probs", "output_log_probs") if name in outputs]
    for name in wanted:
        builder.message.outputs.add(name=name)


def stop_request(engine: ModelDescription, request_id: str) -> Message:
    """The request that ends another one by its id; the engine ignores its required inputs' values."""
    builder = Builder(engine, request_id)
    builder.put("input_ids", [0])
    builder.put("input_lengths", [1])
    builder.put("request_output_len", [1])
    builder.put("stop", [True])
    return builder.message
