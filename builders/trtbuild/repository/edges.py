"""Ensembles, edge by edge: every mistake that the core would find when it loads them, and the silent ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tritonclient.grpc import model_config_pb2
from tritonclient.grpc.model_config_pb2 import ModelConfig


@dataclass(frozen=True)
class EdgeFault:
    """What is wrong with one tensor of one ensemble; ``loads``: Triton loads the ensemble all the same."""

    ensemble: str
    tensor: str
    message: str
    loads: bool = False

    def __str__(self) -> str:
        return f"{self.ensemble}: tensor {self.tensor!r}: {self.message}"


@dataclass(frozen=True)
class _End:
    """A tensor as one model declares it."""

    model: str
    name: str
    dtype: int
    dims: tuple[int, ...]
    is_batched: bool
    optional: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """With the batch dimension, as on the wire."""
        return (-1, *self.dims) if self.is_batched else self.dims


def ensemble_faults(ensemble: ModelConfig, models: Mapping[str, ModelConfig]) -> list[EdgeFault]:
    """Checks one ensemble against the models of the repository.

    Checked beside `graph_faults`: that steps and their tensors exist, every required input is fed, each
    tensor has one source of the same type and a compatible shape, no step mixes tensors of a decoupled model
    with others or waits for itself, and max_batch_size is not above a step's. Steps may stand in any order.
    """
    return [*graph_faults(ensemble), *_faults(ensemble, models)]


def graph_faults(ensemble: ModelConfig) -> list[EdgeFault]:
    """What the ensemble's own config shows: steps without a map, tensors that nothing reads or writes."""
    return list(_graph(ensemble))


def _graph(ensemble: ModelConfig) -> Iterator[EdgeFault]:
    steps = ensemble.ensemble_scheduling.step
    for step in steps:
        for side, entries in (("input_map", step.input_map), ("output_map", step.output_map)):
            if not entries:
                yield EdgeFault(ensemble.name, "", f"step {step.model_name} has no {side}")
    given, wanted = {item.name for item in ensemble.input}, {item.name for item in ensemble.output}
    read = {tensor for step in steps for tensor in step.input_map.values()}
    written = {tensor: step.model_name for step in steps for tensor in step.output_map.values()}
    for name in sorted(given - read - wanted):
        yield EdgeFault(ensemble.name, name, "no step reads this input")
    for name in sorted(written.keys() - read - wanted):
        yield EdgeFault(ensemble.name, name, f"{written[name]} writes it, and nothing reads it")
    for name in sorted(wanted - written.keys() - given):
        yield EdgeFault(ensemble.name, name, "no step writes this output")


def _faults(ensemble: ModelConfig, models: Mapping[str, ModelConfig]) -> Iterator[EdgeFault]:
    def fault(tensor: str, message: str) -> EdgeFault:
        return EdgeFault(ensemble.name, tensor, message)

    batch = ensemble.max_batch_size
    sources = {end.name: end for end in _ends(ensemble.name, ensemble.input, batch)}
    steps = []
    for step in ensemble.ensemble_scheduling.step:
        model = models.get(step.model_name)
        if model is None:
            yield fault("", f"step {step.model_name!r} is no model of this repository")
            continue
        steps.append((step, model))
        if 0 < model.max_batch_size < batch:  # 0: its own first dimension may carry the batch
            yield fault(
                "", f"max_batch_size {batch} is above that of step {step.model_name} ({model.max_batch_size})"
            )
        outputs = {end.name: end for end in _ends(model.name, model.output, model.max_batch_size)}
        for name, tensor in step.output_map.items():
            other = sources.setdefault(tensor, outputs[name]) if name in outputs else None
            if other is None:
                yield fault(tensor, f"{step.model_name} has no output {name!r}")
            elif other is not outputs[name]:
                text = f"{step.model_name} writes it, and {other.model} does, too"
                yield EdgeFault(ensemble.name, tensor, text, loads=other.model == ensemble.name)
    for step, model in steps:
        inputs = {end.name: end for end in _ends(model.name, model.input, model.max_batch_size)}
        for name, tensor in step.input_map.items():
            if name not in inputs:
                yield fault(tensor, f"{step.model_name} has no input {name!r}")
            elif tensor not in sources:
                yield fault(tensor, f"nothing produces it, and {step.model_name} reads it as {name!r}")
            else:
                yield from (fault(tensor, text) for text in _mismatch(sources[tensor], inputs[name]))
        for name, end in inputs.items():
            if step.input_map and not end.optional and name not in step.input_map:
                yield fault(
                    name, f"{step.model_name} needs its input {name!r}, and no tensor is mapped to it"
                )
    yield from _streams(ensemble, steps, sources)
    for end in _ends(ensemble.name, ensemble.output, batch):
        if end.name in sources:
            yield from (fault(end.name, text) for text in _mismatch(sources[end.name], end))


def _streams(
    ensemble: ModelConfig,
    steps: Sequence[tuple[model_config_pb2.ModelEnsembling.Step, ModelConfig]],
    sources: Mapping[str, _End],
) -> Iterator[EdgeFault]:
    """Follows the tensors from the inputs on: steps that mix streams, and steps that wait for themselves."""
    origins: dict[str, frozenset[str]] = {item.name: frozenset() for item in ensemble.input}  # decoupled ones
    waiting = list(steps)
    while ready := [
        (step, model)
        for step, model in waiting
        if all(tensor in origins or tensor not in sources for tensor in step.input_map.values())
    ]:
        waiting = [entry for entry in waiting if entry not in ready]
        for step, model in ready:
            upstream = {origins[tensor] for tensor in step.input_map.values() if tensor in origins}
            if len(upstream) > 1:
                yield EdgeFault(
                    ensemble.name,
                    "",
                    f"step {step.model_name} mixes tensors of a decoupled model with tensors from elsewhere",
                )
            made = frozenset().union(*upstream) if upstream else frozenset()
            if model.model_transaction_policy.decoupled:
                made |= {step.model_name}
            for tensor in step.output_map.values():
                origins.setdefault(tensor, made)
    for step, _ in waiting:
        tensor = next(tensor for tensor in step.input_map.values() if tensor not in origins)
        yield EdgeFault(ensemble.name, tensor, f"step {step.model_name} waits for it in a circle")


def _ends(
    model: str,
    tensors: Sequence[model_config_pb2.ModelInput] | Sequence[model_config_pb2.ModelOutput],
    max_batch_size: int,
) -> Iterator[_End]:
    """Tensors as clients and other models see them: a reshape is between the model and its backend only."""
    for tensor in tensors:
        optional = bool(getattr(tensor, "optional", False))
        yield _End(model, tensor.name, tensor.data_type, tuple(tensor.dims), max_batch_size > 0, optional)


def _mismatch(source: _End, sink: _End) -> Iterator[str]:
    if source.dtype != sink.dtype:
        yield (
            f"{source.model} gives {_type(source.dtype)} ({source.name}), "
            f"{sink.model} takes {_type(sink.dtype)} ({sink.name})"
        )
    # Triton adds or takes away the batch dimension where only one side has it.
    if not (_fit(source.shape, sink.shape) or _fit(source.dims, sink.dims)):
        yield (
            f"{source.model} gives shape {list(source.shape)} ({source.name}), "
            f"{sink.model} takes {list(sink.shape)} ({sink.name}); batches come first"
        )


def _fit(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True)
    )


def _type(dtype: int) -> str:
    return str(model_config_pb2.DataType.Name(dtype)).removeprefix("TYPE_")
