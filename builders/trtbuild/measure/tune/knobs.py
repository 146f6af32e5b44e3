"""What may be changed in a spec, and the values that are worth a trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trtbuild.plan.model import LlmPlan, Plan, VisionPlan
from trtbuild.plan.sources import name_of
from trtbuild.spec import DeploymentSpec, LlmSpec, VisionSpec

Settings = dict[str, Any]  # knob → value, of those that differ from the beginning
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_STEPS = (256, 512, 1024, 2048, 4096, 8192)
_KV_SHARES = (0.5, 1.0, 2.0, 4.0)
_INSTANCES = (1, 2)
_DELAYS_US = (0, 500, 2000, 5000, 10_000)
_VISION_INSTANCES = (1, 2, 4)


@dataclass(frozen=True)
class Knob:
    """One parameter: its values in order, the one that the plan has, and how a spec says another."""

    name: str
    values: tuple[Any, ...]
    begin: Any
    set: Callable[[DeploymentSpec, Any], DeploymentSpec]

    def neighbours(self, value: Any) -> tuple[Any | None, Any | None]:
        """The next value up and down; None at an end."""
        at = self.values.index(value)
        up = self.values[at + 1] if at + 1 < len(self.values) else None
        return up, self.values[at - 1] if at else None


def knobs_of(plan: Plan, model: str) -> list[Knob]:
    """The knobs of one model, those with the most effect first, and the vision models' beside it."""
    found: list[Knob] = []
    for row in plan.models:
        if isinstance(row, LlmPlan) and row.name == model:
            found += _llm_knobs(row)
    for row in plan.models:
        if isinstance(row, VisionPlan):
            found += _vision_knobs(row)
    return found


def apply(spec: DeploymentSpec, knobs: Sequence[Knob], settings: Settings) -> DeploymentSpec:
    """The spec with these settings."""
    for knob in knobs:
        if knob.name in settings and settings[knob.name] != knob.begin:
            spec = knob.set(spec, settings[knob.name])
    return spec


def _llm_knobs(plan: LlmPlan) -> list[Knob]:
    name = plan.name

    def knob(what: str, field: str, values: Sequence[Any], begin: Any, scale: Any = None) -> Knob:
        def put(spec: DeploymentSpec, value: Any) -> DeploymentSpec:
            changes = {field: value if scale is None else scale(value)}
            if field == "concurrency":
                changes["max_batch_size"] = None  # as many slots
            return _with_llm(spec, name, **changes)

        return Knob(f"{name}.{what}", _with(values, begin), begin, put)

    def pool(share: float) -> int:
        return max(plan.tokens_per_block, int(plan.kv_tokens * share))

    found = [
        knob("max_batch_size", "concurrency", _BATCHES, plan.max_batch_size),
        knob("max_num_tokens", "max_num_tokens", _STEPS, plan.max_num_tokens),
        knob("kv_share", "kv_tokens", _KV_SHARES, 1.0, pool),
        knob("instances", "instances", _INSTANCES, plan.instances),
    ]
    if plan.chunked_context:
        found.append(knob("chunked_context", "chunked_context", (False, True), True))
    return found


def _vision_knobs(plan: VisionPlan) -> list[Knob]:
    name, network = plan.name, max(plan.networks, key=lambda row: row.max_batch_size)

    def knob(field: str, values: Sequence[Any], begin: Any) -> Knob:
        def put(spec: DeploymentSpec, value: Any) -> DeploymentSpec:
            return _with_vision(spec, name, **{field: value})

        return Knob(f"{name}.{field}", _with(values, begin), begin, put)

    return [
        knob("max_queue_delay_us", _DELAYS_US, network.max_queue_delay_us),
        knob("instances", _VISION_INSTANCES, network.instances),
    ]


def _with(values: Sequence[Any], begin: Any) -> tuple[Any, ...]:
    return tuple(sorted({*values, begin}))


def _with_llm(spec: DeploymentSpec, name: str, **changes: Any) -> DeploymentSpec:
    def changed(row: LlmSpec) -> LlmSpec:
        same = name_of(row) == name
        return row.model_copy(update=changes) if same else row

    return spec.model_copy(update={"models": tuple(map(changed, spec.models))})


def _with_vision(spec: DeploymentSpec, name: str, **changes: Any) -> DeploymentSpec:
    def changed(row: VisionSpec) -> VisionSpec:
        return row.model_copy(update=changes) if row.name == name else row

    return spec.model_copy(update={"vision": tuple(map(changed, spec.vision))})
