"""Fills a ``ModelInferRequest`` for one model, with the names, dtypes and shapes that its config declares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _tensors
from ._proto import service_pb2
from .errors import UnsupportedError, UsageError
from .models import ModelDescription, TensorSpec

if TYPE_CHECKING:
    from ._proto import Message


class Builder:
    """The request under construction, as ``message``.

    Args:
        model: for which it is.
        request_id: its id.
        stencil: a builder whose inputs, outputs and parameters are taken over.
    """

    def __init__(self, model: ModelDescription, request_id: str, stencil: Builder | None = None) -> None:
        self.model = model
        self.message: Message = service_pb2.ModelInferRequest()
        self.given: set[str] = set()
        if stencil is not None:
            self.message.CopyFrom(stencil.message)
            self.given |= stencil.given
        self.message.model_name = model.name
        self.message.id = request_id

    def put(self, name: str, values: Sequence[Any]) -> None:
        """Adds an input of flat values, shaped as the model declares it."""
        spec = self._spec(name)
        self._add(spec, self._shape(spec, len(values)), _tensors.pack(name, spec.dtype, values))

    def put_any(self, name: str, value: Any) -> None:
        """Adds an input given by the model's own name: a scalar, a flat list, or an array.

        An array may lack the batch dimension.
        """
        spec = self._spec(name)
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            shape = tuple(value.shape)
            if self.model.max_batch_size and len(shape) == len(spec.dims):
                shape = (1, *shape)
            self._check(spec, shape)
            self._add(spec, shape, _tensors.from_array(name, spec.dtype, value))
        elif isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            self.put(name, [value])
        else:
            self.put(name, value)

    def flag(self, name: str) -> bool:
        """Sets a BOOL input where the model has it and it is not set yet; says whether it is set now."""
        if name in self.model.inputs and name not in self.given:
            self.put(name, [True])
        return name in self.given

    def _spec(self, name: str) -> TensorSpec:
        spec = self.model.inputs.get(name)
        if spec is None:
            has = ", ".join(self.model.inputs)
            raise UnsupportedError(f"{self.model.name} has no input {name!r}; it has {has}")
        if name in self.given:
            raise UsageError(f"input {name!r} is given twice")
        return spec

    def _add(self, spec: TensorSpec, shape: Sequence[int], raw: bytes) -> None:
        self.given.add(spec.name)
        self.message.inputs.add(name=spec.name, datatype=spec.dtype, shape=shape)
        self.message.raw_input_contents.append(raw)

    def _shape(self, spec: TensorSpec, count: int) -> tuple[int, ...]:
        dims = spec.dims or (1,)
        if -1 in dims:
            free = dims.index(-1)
            fixed = math.prod(size for size in dims if size > 0)
            dims = tuple(count // fixed if at == free else max(size, 1) for at, size in enumerate(dims))
        if math.prod(dims) != count:
            shape = list(spec.dims)
            raise UsageError(
                f"input {spec.name!r} of {self.model.name} has shape {shape}; {count} values do not fit"
            )
        return (1, *dims) if self.model.max_batch_size else dims

    def _check(self, spec: TensorSpec, shape: tuple[int, ...]) -> None:
        wanted = (-1, *spec.dims) if self.model.max_batch_size else spec.dims
        if len(shape) != len(wanted) or any(
            -1 != want != got for want, got in zip(wanted, shape, strict=True)
        ):
            batch = " after the batch dimension" if self.model.max_batch_size else ""
            raise UsageError(
                f"input {spec.name!r} of {self.model.name} has shape {list(spec.dims)}{batch}; "
                f"the array has {list(shape)}"
            )
        if self.model.max_batch_size and shape[0] > self.model.max_batch_size:
            raise UsageError(
                f"{self.model.name} takes batches of at most {self.model.max_batch_size}, not {shape[0]}"
            )
