"""A Triton request of the text front, as typed values. Nothing of it refers to Triton's memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

if TYPE_CHECKING:
    from tritonstream.text import PromptError, decode_input
else:
    from .tritontext import PromptError, decode_input

Array = npt.NDArray[Any]
_NONE: Mapping[str, Any] = {}

# front's input → engine's input, handed on as they are
PASSED_ON = {
    "top_k": "runtime_top_k",
    "top_p": "runtime_top_p",
    "temperature": "temperature",
    "length_penalty": "len_penalty",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "beam_width": "beam_width",
    "num_return_sequences": "num_return_sequences",
    "return_log_probs": "return_log_probs",
    "return_context_logits": "return_context_logits",
    "return_generation_logits": "return_generation_logits",
    "return_perf_metrics": "return_perf_metrics",
    "lora_task_id": "lora_task_id",
    "lora_weights": "lora_weights",
    "lora_config": "lora_config",
    "guided_decoding_guide_type": "guided_decoding_guide_type",
    "guided_decoding_guide": "guided_decoding_guide",
}


@dataclass
class TextRequest:
    """What a client asks for. Absent values are None, or the default that is stated."""

    text: str | None = None
    messages: Any = None  # parsed JSON
    tools: Any = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stream: bool = False
    stop_words: list[str] = field(default_factory=list)
    bad_words: list[str] = field(default_factory=list)
    bias_words: list[str] = field(default_factory=list)
    bias_weights: list[float] = field(default_factory=list)
    exclude_input: bool = True
    add_special_tokens: bool = True
    end_id: int | None = None
    pad_id: int | None = None
    seed: int | None = None
    timeout_ms: int = 0
    traffic_class: object = None  # as it was sent; see Meter.of
    degrade_step: int = 0  # 0: as the client asked first
    passed_on: dict[str, Array] = field(default_factory=dict)  # by the engine's name

    @property
    def samples(self) -> int:
        """How many sequences are asked for, each sampled on its own or one of the beams."""
        return self._count("num_return_sequences")

    @property
    def sequences(self) -> int:
        """How many texts are asked for: beams, or samples."""
        return max(self._count("beam_width"), self.samples)

    def _count(self, name: str) -> int:
        value = self.passed_on.get(name)
        return 1 if value is None or value.size == 0 else int(value.ravel()[0])


def read_request(tensors: Mapping[str, Array], parameters: Mapping[str, Any] = _NONE) -> TextRequest:
    """Reads one request.

    Args:
        tensors: inputs by name, with the batch dimension 1 in front.
        parameters: the request's own. They say where it is counted, and none of them makes it fail.

    Raises:
        PromptError: for an input of a wrong shape, broken UTF-8 or broken JSON.
    """
    request = TextRequest()
    for name, array in tensors.items():
        engine_name = PASSED_ON.get(name)
        if engine_name is not None:
            request.passed_on[engine_name] = array.copy()
            continue
        reader = _READERS.get(name)
        if reader is not None:
            attribute, read = reader
            setattr(request, attribute, read(name, array))
    if request.text is not None and request.messages is not None:
        raise PromptError("text_input and messages are both given; send one of them")
    request.traffic_class = parameters.get("traffic_class")
    step = parameters.get("degrade_step")
    if type(step) is int and step > 0:
        request.degrade_step = step
    return request


def _one(name: str, array: Array) -> Any:
    if array.size != 1:
        raise PromptError(f"{name} must be one value, not {array.size} (shape {list(array.shape)})")
    return array.reshape(-1)[0]


def _int(name: str, array: Array) -> int:
    return int(_one(name, array))


def _bool(name: str, array: Array) -> bool:
    return bool(_one(name, array))


def _text(name: str, array: Array) -> str:
    return decode_input(_one(name, array), name)


def _json(name: str, array: Array) -> Any:
    text = _text(name, array)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise PromptError(f"{name} is not JSON: {exc}") from None


def _objects(name: str, array: Array) -> list[Any]:
    value = _json(name, array)
    if not isinstance(value, list):
        raise PromptError(f"{name} must be a JSON list, not {type(value).__name__}")
    return value


def _texts(name: str, array: Array) -> list[str]:
    texts = [decode_input(item, name) for item in array.reshape(-1)]
    return [text for text in texts if text]  # NVIDIA's clients send [""] for none


def _floats(_: str, array: Array) -> list[float]:
    return [float(value) for value in array.reshape(-1)]


_READERS: dict[str, tuple[str, Any]] = {
    "text_input": ("text", _text),
    "messages": ("messages", _objects),
    "tools": ("tools", _objects),
    "max_tokens": ("max_tokens", _int),
    "min_tokens": ("min_tokens", _int),
    "min_length": ("min_tokens", _int),  # before TensorRT-LLM 0.20
    "stream": ("stream", _bool),
    "stop_words": ("stop_words", _texts),
    "bad_words": ("bad_words", _texts),
    "embedding_bias_words": ("bias_words", _texts),
    "embedding_bias_weights": ("bias_weights", _floats),
    "exclude_input_in_output": ("exclude_input", _bool),
    "add_special_tokens": ("add_special_tokens", _bool),
    "end_id": ("end_id", _int),
    "pad_id": ("pad_id", _int),
    "seed": ("seed", _int),
    "random_seed": ("seed", _int),  # before TensorRT-LLM 0.20
    "timeout_ms": ("timeout_ms", _int),
}
