"""What a model is, read from its config: which way it is called and what it can do."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._proto import Message


class ModelKind(str, Enum):
    """How a model is called."""

    FRONT = "front"  # trtbuild's text front: text or chat messages in, text out
    ENSEMBLE = "ensemble"  # NVIDIA's classic pipeline: text in, text out
    BLS = "bls"  # the same tensors, served by one Python model
    LLMAPI = "llmapi"  # TensorRT-LLM's LLM API behind the Python backend
    ENGINE = "engine"  # token ids in, token ids out
    OCR = "ocr"  # a picture in; lines of text, scores and boxes out
    CLASSIFIER = "classifier"  # pictures in; classes with their scores out
    DETECTOR = "detector"  # pictures in; boxes with classes and scores out
    SEGMENTER = "segmenter"  # pictures in; masks out
    EMBEDDER = "embedder"  # pictures in; vectors out
    OTHER = "other"  # anything else: callable by infer()


class CancelHow(str, Enum):
    """How a running request is stopped from here."""

    NATIVE = "native"  # cancelling the RPC reaches what generates
    STOP_REQUEST = "stop-request"  # a second request with the same id tells the engine
    NONE = "none"  # the server generates to the end; only the reading stops


class Characters(str, Enum):
    """What streamed text promises about characters whose tokens come in different responses."""

    WHOLE = "whole"  # they come out as they are
    PER_CHUNK = "per-chunk"
    """The server decodes each response by itself (NVIDIA's ensemble and BLS): such a character comes as
    U+FFFD, and a SentencePiece text may lose spaces. ``generate`` and ``chat`` ask these models for the whole
    answer at once, which is exact. With a ``tokenizer``, the client calls the engine behind them and decodes
    here: exact, streamed, and cancelled natively."""


@dataclass(frozen=True, slots=True)
class Cancel:
    how: CancelHow
    why: str
    engine: str = ""  # the model that takes the stop request


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output. ``dims`` are without the batch dimension; −1 is any size."""

    name: str
    dtype: str  # KServe's name, such as INT32 or BYTES
    dims: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A model as this client sees it; what ``Client.describe`` returns."""

    name: str
    kind: ModelKind
    decoupled: bool
    max_batch_size: int  # 0: the model has no batch dimension
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    parameters: Mapping[str, str]
    cancel: Cancel
    steps: tuple[str, ...] = ()  # models of an ensemble
    priority_levels: int = 0
    engine: ModelDescription | None = None  # behind an ensemble or BLS, where its config can be read
    through: str = ""  # the ensemble or BLS that this engine was found behind
    server_version: tuple[int, ...] = ()  # of Triton, such as (2, 68, 0); empty if it did not say
    stencils: dict[bool, Any] = field(default_factory=dict, repr=False, compare=False)
    """What every request says, by whether it streams; filled by ``_request``."""

    @property
    def streaming(self) -> bool:
        """Whether text arrives as it is made."""
        return self.decoupled

    @property
    def characters(self) -> Characters:
        """What streamed text promises about characters; see ``Characters``."""
        alone = self.kind is ModelKind.ENSEMBLE or (
            self.kind is ModelKind.BLS and _BLS_ENGINE in self.parameters and not self.repeats
        )
        return Characters.PER_CHUNK if alone and self.decoupled else Characters.WHOLE

    @property
    def repeats(self) -> bool:
        """Whether every response holds all text so far (NVIDIA's BLS with ``accumulate_tokens``)."""
        return self.parameters.get("accumulate_tokens", "").lower() in ("true", "yes", "1", "t")

    def with_version(self, version: tuple[int, ...]) -> ModelDescription:
        """The same, of a Triton of this version."""
        engine = None if self.engine is None else replace(self.engine, server_version=version)
        return replace(self, server_version=version, engine=engine)

    @property
    def features(self) -> frozenset[str]:
        """Names of what the model offers beyond plain generation; see ``FEATURES``."""
        found = {
            name
            for name, inputs in FEATURES.items()
            if any(i in self.inputs for i in inputs) and self.refused.isdisjoint(inputs)
        }
        return frozenset(found - {"structured_output"} if self.unguided else found)

    @property
    def refused(self) -> frozenset[str]:
        """Inputs of the engine that it has in name only, as its config says (trtbuild's engine for CPUs)."""
        engine = self if self.kind is ModelKind.ENGINE else self.engine
        listed = "" if engine is None else engine.parameters.get("unsupported_inputs", "")
        return frozenset(filter(None, listed.split(",")))

    @property
    def unguided(self) -> bool:
        """Whether the engine was set up without a guided decoder, so that its inputs for one do nothing."""
        engine = self if self.kind is ModelKind.ENGINE else self.engine
        return engine is not None and engine.parameters.get("guided_decoding_backend") == ""

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.kind.value}, {'streaming' if self.streaming else 'one answer per request'}, "
            f"cancel: {self.cancel.how.value} ({self.cancel.why}); characters: {self.characters.value}; "
            f"offers {', '.join(sorted(self.features)) or 'no extras'}"
        )


FEATURES: Mapping[str, tuple[str, ...]] = {  # feature → the inputs, any of which means that it is there
    "chat": ("messages",),
    "structured_output": ("guided_decoding_guide",),
    "logprobs": ("return_log_probs", "return_cumulative_logprob"),
    "n": ("num_return_sequences", "sampling_param_n"),
    "seed": ("seed", "random_seed", "sampling_param_seed"),
    "lora": ("lora_task_id", "lora_name"),
    "embedding_bias": ("embedding_bias_words", "embedding_bias"),
    "deadline": ("timeout_ms",),
    "usage": ("return_num_output_tokens",),
}


def parse_config(config: Message) -> ModelDescription:
    """Reads a ``ModelConfig`` message. The cancel way of an ensemble is settled by ``with_engine``."""
    inputs = {spec.name: spec for spec in map(_spec, config.input)}
    outputs = {spec.name: spec for spec in map(_spec, config.output)}
    kind = _kind(config, inputs, outputs)
    parameters = {key: value.string_value for key, value in config.parameters.items()}
    return ModelDescription(
        name=config.name,
        kind=kind,
        decoupled=config.model_transaction_policy.decoupled,
        max_batch_size=config.max_batch_size,
        inputs=inputs,
        outputs=outputs,
        parameters=parameters,
        cancel=_cancel(kind, parameters),
        steps=tuple(step.model_name for step in config.ensemble_scheduling.step),
        priority_levels=config.dynamic_batching.priority_levels,
    )


def _spec(tensor: Message) -> TensorSpec:
    from ._proto import model_config_pb2

    dtype = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    return TensorSpec(
        tensor.name,
        "BYTES" if dtype == "STRING" else dtype,
        tuple(tensor.dims),
        bool(getattr(tensor, "optional", False)),
    )


def _kind(config: Message, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> ModelKind:
    if "input_ids" in inputs and "request_output_len" in inputs:
        return ModelKind.ENGINE
    if "text_input" in inputs and "text_output" in outputs:
        if any(name.startswith("sampling_param_") for name in inputs):
            return ModelKind.LLMAPI
        if config.platform == "ensemble" or config.HasField("ensemble_scheduling"):
            return ModelKind.ENSEMBLE
        return ModelKind.FRONT if "messages" in inputs else ModelKind.BLS
    if "image" in inputs:
        return next((kind for names, kind in _PICTURE_KINDS if names <= set(outputs)), ModelKind.OTHER)
    return ModelKind.OTHER


# Outputs by which a model that takes pictures is known, the most telling first.
_PICTURE_KINDS: tuple[tuple[set[str], ModelKind], ...] = (
    ({"text", "score", "box"}, ModelKind.OCR),
    ({"mask", "picture_size"}, ModelKind.SEGMENTER),
    ({"box", "score", "class_id", "label", "count"}, ModelKind.DETECTOR),
    ({"class_id", "score", "label"}, ModelKind.CLASSIFIER),
    ({"embedding"}, ModelKind.EMBEDDER),
)


_FRONT_ENGINE = "engine_model"  # trtbuild's front names its engine here
_BLS_ENGINE = "tensorrt_llm_model_name"  # NVIDIA's BLS (TensorRT-LLM 0.9 and later) names its engine here
_BLS_PASSES_ID = "multimodal_encoders_name"  # and from the release that added this, gives it the request's id


def _cancel(kind: ModelKind, parameters: Mapping[str, str]) -> Cancel:
    """How a model is cancelled, as far as its own config tells."""
    if kind is ModelKind.ENSEMBLE:
        return Cancel(CancelHow.NONE, "an ensemble's steps do not see that the client left")
    if kind is ModelKind.BLS and _BLS_ENGINE in parameters:
        return Cancel(
            CancelHow.NONE, "this BLS does not look whether the client left, nor does its engine know the id"
        )
    if kind is ModelKind.BLS:
        return Cancel(
            CancelHow.NATIVE, "the RPC is cancelled; whether the model passes it on is its own affair"
        )
    return Cancel(CancelHow.NATIVE, "one RPC per request, cancelled at the server")


def describing(name: str) -> Generator[str, Message | None, ModelDescription]:
    """Describes a model, as a dialogue: yields names of models whose config is needed, is sent the configs.

    None stands for a config that cannot be had; for the model itself the asker raises instead.
    """
    config = yield name
    model = parse_config(config)
    for candidate in _engines(model):
        config = yield candidate
        if config is not None and any(tensor.name == "input_ids" for tensor in config.input):
            engine = parse_config(config)
            told = model.kind is ModelKind.ENSEMBLE or _BLS_PASSES_ID in model.parameters
            told = told and model.kind is not ModelKind.FRONT  # it is cancelled natively
            cancel = _engine_cancel(engine, _instances(config)) if told else model.cancel
            return replace(model, cancel=cancel, engine=replace(engine, through=name))
    return model


def _engines(model: ModelDescription) -> Sequence[str]:
    """Models that may be the engine behind a front, an ensemble or NVIDIA's BLS."""
    if model.kind is ModelKind.ENSEMBLE:
        return model.steps
    names = {ModelKind.FRONT: _FRONT_ENGINE, ModelKind.BLS: _BLS_ENGINE}
    name = model.parameters.get(names.get(model.kind, ""))
    return [name] if name else []


def _engine_cancel(engine: ModelDescription, instances: int) -> Cancel:
    """How an ensemble over this engine is cancelled.

    Stop requests find a request by its id in the memory of the instance that they happen to reach, so they
    work with exactly one (tensorrt_llm backend; tried with two: none of 12 arrived).
    """
    if "stop" not in engine.inputs:
        return Cancel(CancelHow.NONE, f"its engine {engine.name} takes no stop request")
    if instances != 1:
        why = f"its engine {engine.name} has {instances} instances, so a stop may reach the wrong one"
        return Cancel(CancelHow.NONE, why)
    why = f"a stop request with the same id goes to {engine.name}"
    return Cancel(CancelHow.STOP_REQUEST, why, engine.name)


def _instances(config: Message) -> int:
    """Instances that a config asks for; 1 without a group (Triton then makes one, or one a GPU)."""
    counts = [max(group.count, 1) * max(len(group.gpus), 1) for group in config.instance_group]
    return sum(counts) if counts else 1
