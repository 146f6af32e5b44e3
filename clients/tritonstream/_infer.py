"""Calls with plain tensors: any model that answers a request once or more, pictures among them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _checks, _tensors
from ._builder import Builder
from ._params import InferParams, check_carriage
from ._shm import Region, Regions, is_local
from ._task import Built
from .errors import ProtocolError, UnsupportedError, UsageError
from .events import Event, FinishReason, Tensors
from .models import ModelDescription

if TYPE_CHECKING:
    import numpy as np

    from ._codec import Codec
    from ._proto import Message

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class InferTask:
    """A ``Task`` with tensors. ``regions`` is given where inputs go through shared memory."""

    inputs: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    regions: Regions | None = None

    def __post_init__(self) -> None:
        check_carriage(self.params, InferParams.__annotations__)

    @property
    def operation(self) -> str:
        return "infer"

    def needs_codec(self, model: ModelDescription) -> bool:
        return False

    def shortened(self, max_tokens: int) -> InferTask:
        return self

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
        builder = Builder(model, request_id)
        for name, value in self.inputs.items():
            builder.put_any(name, value)
        missing = [
            spec.name
            for spec in model.inputs.values()
            if not spec.optional and spec.name not in builder.given
        ]
        if missing:
            raise UsageError(f"{model.name} needs the input{'s' * (len(missing) > 1)} {', '.join(missing)}")
        for name in self.params.get("outputs") or ():
            if name not in model.outputs:
                raise UsageError(f"{model.name} has no output {name!r}; it has {', '.join(model.outputs)}")
            builder.message.outputs.add(name=name)
        priority = self.params.get("priority")
        if priority is not None:
            if not 1 <= priority <= model.priority_levels:
                raise UnsupportedError(
                    f"{model.name} has {model.priority_levels} priority levels, so {priority} is none"
                )
            builder.message.parameters["priority"].int64_param = priority
        if stream:
            builder.message.parameters["triton_enable_empty_final_response"].bool_param = True
        if self.regions is None:
            return Built(builder.message, InferReader(request_id))
        return _through_memory(builder.message, request_id, self.regions, endpoint)


def _through_memory(message: Message, request_id: str, regions: Regions, endpoint: str) -> Built:
    if not is_local(endpoint):
        raise UsageError(f"shared memory works with servers on this machine; {endpoint} is none")
    raws = list(message.raw_input_contents)
    region = regions.take(sum(map(len, raws)))
    region.write(b"".join(raws))
    offset = 0
    for tensor, raw in zip(message.inputs, raws, strict=True):
        tensor.parameters["shared_memory_region"].string_param = region.name
        tensor.parameters["shared_memory_byte_size"].int64_param = len(raw)
        tensor.parameters["shared_memory_offset"].int64_param = offset
        offset += len(raw)
    del message.raw_input_contents[:]
    reader = InferReader(request_id, regions, region)
    return Built(message, reader, before=regions.introduce(region, endpoint))


class InferReader:
    """Collects the outputs of a request's responses. See ``_task.Reader``."""

    def __init__(self, request_id: str, regions: Regions | None = None, region: Region | None = None) -> None:
        self._id = request_id
        self._regions = regions
        self._region = region
        self.final = self.ended_here = self.stopped = self.heard = False
        self.server_ns: dict[str, int] = {}

    def quick(self, data: bytes) -> str | None:
        return None

    def learn(self, data: bytes, response: Message) -> None:
        """There is nothing to learn from; see ``_task.Reader``."""

    def feed(self, response: Message) -> list[Event]:
        if response.id and response.id != self._id:
            raise ProtocolError(
                f"got a response of request {response.id!r}: the server mixed up two requests"
            )
        flag = response.parameters.get("triton_final_response")
        self.final = flag is not None and flag.bool_param
        self.heard = True
        if not response.outputs:
            return []
        raws = response.raw_output_contents
        if len(raws) != len(response.outputs):
            raws = [_tensors.contents(output) for output in response.outputs]
        outputs = zip(response.outputs, raws, strict=True)
        return [Tensors({o.name: _tensors.to_array(o.datatype, o.shape, raw) for o, raw in outputs})]

    def end(self, reason: FinishReason | None = None) -> list[Event]:
        self._release(clean=reason is None)
        return []

    def discard(self) -> None:
        self._release(clean=False)

    def _release(self, *, clean: bool) -> None:
        region, self._region = self._region, None
        if region is not None and self._regions is not None:
            self._regions.give_back(region, clean=clean)


def batches(model: ModelDescription, inputs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Splits a batch that is larger than the model takes.

    Raises:
        UsageError: if inputs have different batch sizes.
    """
    _checks.tensors("inputs", inputs)
    sizes = {
        name: value.shape[0]
        for name, value in inputs.items()
        if model.max_batch_size
        and name in model.inputs
        and getattr(value, "ndim", None) == len(model.inputs[name].dims) + 1
    }
    if not sizes or max(sizes.values()) <= model.max_batch_size:
        return [inputs]
    if len(set(sizes.values())) > 1 or len(sizes) < len(inputs):
        raise UsageError(f"the inputs have different batch sizes: {sizes}")
    total, most = next(iter(sizes.values())), model.max_batch_size
    return [{name: value[at : at + most] for name, value in inputs.items()} for at in range(0, total, most)]


def joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Puts the outputs of a split batch together again."""
    import numpy as np

    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def only(model: str, events: Sequence[Event]) -> Mapping[str, Array]:
    """The outputs of a request that has one response.

    Raises:
        UnsupportedError: if there were several, or none.
    """
    found = [event.values for event in events if isinstance(event, Tensors)]
    if len(found) != 1:
        raise UnsupportedError(
            f"{model} answered with {len(found)} responses; infer() is for models that answer once"
        )
    return found[0]
