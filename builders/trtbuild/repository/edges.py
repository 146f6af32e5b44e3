"""Ensembles, edge by edge: every mistake that the core would find when it loads them, and the silent ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tritonclient.grpc import model_config_pb2
from tritonclient.grpc.model_config_pb2 import ModelConfig


@dataclass(frozen=True)
class EdgeFault:
    """What is wrong with one tensor of one ensemble."""

    ensemble: str
    tensor: str
    message: str

    def __str__(self) -> str:
        return f"{self.ensemble}: tensor {self.tensor!r}: {self.message}"


@dataclass(frozen=True)
class _End:
    """A tensor as one model declares it. ``shape`` has the batch dimension, as on the wire."""

    model: str
    name: str
    dtype: int
    shape: tuple[int, ...]
    optional: bool = False


def ensemble_faults(ensemble: ModelConfig, models: Mapping[str, ModelConfig]) -> list[EdgeFault]:
    """Checks one ensemble against the models of the repository.

    Checked: that steps and their tensors exist, every required input is fed, each tensor has one source of
    the same type and a compatible shape (batch dimension included), no step mixes tensors of a decoupled
    model with others, outputs are produced, and max_batch_size is not above a step's.
    """
    return list(_faults(ensemble, models))


def _faults(ensemble: ModelConfig, models: Mapping[str, ModelConfig]) -> Iterator[EdgeFault]:
    def fault(tensor: str, message: str) -> EdgeFault:
        return EdgeFault(ensemble.name, tensor, message)

    batch = ensemble.max_batch_size
    sources = {end.name: end for end in _ends(ensemble.name, ensemble.input, batch)}
    origins: dict[str, frozenset[str]] = {name: frozenset() for name in sources}  # decoupled models upstream
    steps = list(ensemble.ensemble_scheduling.step)
    for step in steps:
        model = models.get(step.model_name)
        if model is None:
            yield fault("", f"step {step.model_name!r} is no model of this repository")
            continue
        if 0 < model.max_batch_size < batch:  # 0: its own first dimension may carry the batch
            yield fault(
                "", f"max_batch_size {batch} is above that of step {step.model_name} ({model.max_batch_size})"
            )
        inputs = {end.name: end for end in _ends(model.name, model.input, model.max_batch_size)}
        outputs = {end.name: end for end in _ends(model.name, model.output, model.max_batch_size)}
        upstream = set()
        for name, tensor in step.input_map.items():
            if name not in inputs:
                yield fault(tensor, f"{step.model_name} has no input {name!r}")
            elif tensor not in sources:
                yield fault(tensor, f"nothing produces it before {step.model_name} reads it as {name!r}")
            else:
                upstream.add(origins[tensor])
                yield from (fault(tensor, text) for text in _mismatch(sources[tensor], inputs[name]))
        for name, end in inputs.items():
            if not end.optional and name not in step.input_map:
                yield fault(
                    name, f"{step.model_name} needs its input {name!r}, and no tensor is mapped to it"
                )
        if len(upstream) > 1:
            yield fault(
                "", f"step {step.model_name} mixes tensors of a decoupled model with tensors from elsewhere"
            )
        made = frozenset().union(*upstream) if upstream else frozenset()
        if model.model_transaction_policy.decoupled:
            made |= {step.model_name}
        for name, tensor in step.output_map.items():
            if name not in outputs:
                yield fault(tensor, f"{step.model_name} has no output {name!r}")
            elif tensor in sources:
                yield fault(tensor, f"{step.model_name} writes it, and {sources[tensor].model} does, too")
            else:
                sources[tensor], origins[tensor] = outputs[name], made
    for end in _ends(ensemble.name, ensemble.output, batch):
        if end.name not in sources:
            yield fault(end.name, "no step writes this output")
        else:
            yield from (fault(end.name, text) for text in _mismatch(sources[end.name], end))


def _ends(
    model: str,
    tensors: Sequence[model_config_pb2.ModelInput] | Sequence[model_config_pb2.ModelOutput],
    max_batch_size: int,
) -> Iterator[_End]:
    """Tensors as clients and other models see them: a reshape is between the model and its backend only."""
    for tensor in tensors:
        shape = tuple(tensor.dims)
        batched = (-1, *shape) if max_batch_size > 0 else shape
        yield _End(model, tensor.name, tensor.data_type, batched, bool(getattr(tensor, "optional", False)))


def _mismatch(source: _End, sink: _End) -> Iterator[str]:
    if source.dtype != sink.dtype:
        yield (
            f"{source.model} gives {_type(source.dtype)} ({source.name}), "
            f"{sink.model} takes {_type(sink.dtype)} ({sink.name})"
        )
    if len(source.shape) != len(sink.shape) or any(
        -1 not in (one, other) and one != other for one, other in zip(source.shape, sink.shape, strict=True)
    ):
        yield (
            f"{source.model} gives shape {list(source.shape)} ({source.name}), "
            f"{sink.model} takes {list(sink.shape)} ({sink.name}); batches come first"
        )


def _type(dtype: int) -> str:
    return str(model_config_pb2.DataType.Name(dtype)).removeprefix("TYPE_")
