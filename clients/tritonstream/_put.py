"""How each parameter of a wish is put into a request, and who refuses which. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ._builder import Builder
from ._params import BY_NAME, Guide, Row, as_strings
from .errors import UnsupportedError
from .models import ModelDescription, ModelKind

if TYPE_CHECKING:
    from ._codec import Codec


def put(builder: Builder, name: str, value: Any, codec: Codec | None) -> None:
    """Adds one parameter.

    Raises:
        UnsupportedError: the model cannot do what it asks for.
    """
    row = BY_NAME.get(name)
    if row is not None:
        _put_row(builder, row, value, codec)
    else:
        _SPECIAL[name](builder, value, codec)


def _put_row(builder: Builder, row: Row, value: Any, codec: Codec | None) -> None:
    kind = builder.model.kind
    values = [value]
    if row.name == "add_special_tokens" or (row.name == "stop" and kind is ModelKind.ENGINE):
        return  # the first is done with the prompt, the second on the text
    if row.name in ("stop", "bad_words"):
        values = as_strings(value)
        if not values:
            return
        if row.name == "bad_words":
            _check_engine(builder, "bad_words", "bad_words_list")
        if kind is ModelKind.ENGINE:
            _put_bad_words(builder, values, codec)
            return
    found = input_of(builder.model, row)
    if found is not None:
        builder.put(found, values)
        if row.name == "logprobs" and kind is ModelKind.FRONT and value:
            for name in ("cum_log_probs", "output_log_probs"):
                builder.message.outputs.add(name=name)
    elif row.name != "stop" and (row.neutral is None or value != row.neutral):  # stops can be looked for here
        names = " or ".join(_names(builder.model, row))
        raise UnsupportedError(f"{builder.model.name} ({kind.value}) has no input for {row.name!r}, {names}")


def _names(model: ModelDescription, row: Row) -> tuple[str, ...]:
    kind = model.kind
    return row.llmapi if kind is ModelKind.LLMAPI else row.engine if kind is ModelKind.ENGINE else row.text


def input_of(model: ModelDescription, row: Row) -> str | None:
    """The model's own name of a parameter, if it has it."""
    return next((name for name in _names(model, row) if name in model.inputs), None)


def _put_bad_words(builder: Builder, words: Sequence[str], codec: Codec | None) -> None:
    if codec is None:
        raise UnsupportedError("bad_words of a bare engine need tokenizer=FOLDER")
    put_word_list(builder, "bad_words_list", codec.words(words))


def put_word_list(builder: Builder, name: str, sequences: Sequence[Sequence[int]]) -> None:
    from .text import word_list

    builder.put_any(name, word_list(sequences))


def _put_guide(builder: Builder, value: Guide, codec: Codec | None) -> None:
    if "guided_decoding_guide" not in builder.model.inputs:
        raise UnsupportedError(
            f"{builder.model.name} has no structured output (no input guided_decoding_guide)"
        )
    if builder.model.unguided:
        raise UnsupportedError(
            f"{builder.model.name} has no structured output: its engine has no guided_decoding_backend"
        )
    builder.put("guided_decoding_guide_type", [value.kind])
    builder.put("guided_decoding_guide", [value.text])


def _check_engine(builder: Builder, what: str, name: str) -> None:
    """Refuses what the engine's input ``name`` would carry, where the engine says that it cannot."""
    if name in builder.model.refused:
        raise UnsupportedError(f"{builder.model.name} takes no {what}: its engine refuses the input {name}")


def _put_bias(builder: Builder, value: Mapping[str, float], codec: Codec | None) -> None:
    model = builder.model
    _check_engine(builder, "embedding bias", "embedding_bias")
    if "embedding_bias_words" in model.inputs:
        builder.put("embedding_bias_words", list(value))
        builder.put("embedding_bias_weights", list(value.values()))
    elif "embedding_bias" in model.inputs and codec is not None:
        builder.put_any("embedding_bias", codec.bias(value))
    else:
        raise UnsupportedError(
            f"{model.name} takes no embedding bias" + ("" if codec else " without tokenizer=FOLDER")
        )


def _put_lora(builder: Builder, value: str | int, codec: Codec | None) -> None:
    name = "lora_name" if isinstance(value, str) else "lora_task_id"
    _check_engine(builder, "LoRA", "lora_task_id")
    if name not in builder.model.inputs:
        takes = [
            word
            for word, has in (("a name", "lora_name"), ("a task id", "lora_task_id"))
            if has in builder.model.inputs
        ]
        raise UnsupportedError(
            f"{builder.model.name} has no input {name} for LoRA {value!r}; "
            f"it takes {' or '.join(takes) or 'no LoRA'}"
        )
    builder.put(name, [value])


def _put_token_ids(builder: Builder, value: bool, codec: Codec | None) -> None:
    if not value or builder.model.kind is ModelKind.ENGINE:
        return
    if "num_return_sequences" in builder.given:
        raise UnsupportedError(
            f"{builder.model.name} does not tell which of several answers an id belongs to"
        )
    if "token_ids" not in builder.model.outputs:
        raise UnsupportedError(f"{builder.model.name} does not give token ids")
    builder.message.outputs.add(name="token_ids")


def _put_priority(builder: Builder, value: int, codec: Codec | None) -> None:
    raise UnsupportedError(
        f"priority={value!r} would do nothing: Triton's priorities order its own queue, and a language "
        "model's requests leave it at once; TensorRT-LLM's executor does not see them"
    )


def _put_inputs(builder: Builder, value: Mapping[str, Any], codec: Codec | None) -> None:
    for name, item in value.items():
        builder.put_any(name, item)


_SPECIAL: Final[dict[str, Callable[[Builder, Any, Any], None]]] = {
    "guide": _put_guide,
    "embedding_bias": _put_bias,
    "lora": _put_lora,
    "token_ids": _put_token_ids,
    "priority": _put_priority,
    "inputs": _put_inputs,
}
