"""`make_plan`: from the spec to every number of the deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trtbuild.catalog.gpus import Gpu
from trtbuild.catalog.versions import Container
from trtbuild.errors import PlanError
from trtbuild.plan import constants
from trtbuild.plan.advice import advise
from trtbuild.plan.changes import Trial
from trtbuild.plan.draft import CHUNK_TOKENS_BESIDE_VISION, Draft
from trtbuild.plan.drafting import make_draft
from trtbuild.plan.fit import share
from trtbuild.plan.ledger import (
    gpu_process_items,
    host_items,
    model_items,
    reserve_bytes,
    reserve_item,
    vision_items,
)
from trtbuild.plan.model import Finding, GpuPlan, LedgerItem, LlmPlan, Plan, VisionPlan
from trtbuild.plan.sources import WeightsFile, name_of, resolve
from trtbuild.plan.vision import VisionSource, plan_vision
from trtbuild.spec import DeploymentSpec, Target

_FP8_CAPABILITY = 8.9  # TensorRT's support matrix, "Hardware and Precision"


def make_plan(
    spec: DeploymentSpec,
    *,
    target: Target,
    target_reason: str,
    gpu: Gpu | None = None,
    gpu_note: str = "",
    host_memory_bytes: int | None = None,
    container: Container | None = None,
    pinned: Sequence[LlmPlan | VisionPlan] = (),
    weights: Mapping[str, WeightsFile] | None = None,
    gguf_metadata: Mapping[str, Mapping[str, Any]] | None = None,
    graphs: Mapping[str, VisionSource] | None = None,
    check: Callable[[Plan, DeploymentSpec], Sequence[Finding]] | None = None,
    container_for: Callable[[Gpu], Container] | None = None,
    fixed_gpu: bool = False,
    advice: bool = True,
) -> Plan:
    """Decides every number of a deployment. Never raises because it does not fit: then ``fits`` is False,
    ``free_bytes`` may be negative, and the findings say what would fit.

    Args:
        spec: what shall run.
        target, target_reason: what serves it, and why that.
        gpu: the GPU (targets engine and llmapi); gpu_note: what was assumed to find it.
        host_memory_bytes: RAM to plan with (target local).
        container: the Triton release; None for local.
        pinned: models that the repository holds already. Their numbers stay as they are; a model of the spec
            with the name of one replaces it.
        weights: local weights by repository name.
        gguf_metadata: their metadata by repository name, for GGUF files.
        graphs: single networks of ``vision`` by repository name.
        check: rules beyond the planner's own, which advice must pass, too.
        container_for: the release on another GPU that advice tries; default: ``container``.
        fixed_gpu: advice may not choose another GPU.
        advice: whether changes are tried where it does not fit.

    Raises:
        CatalogError, ModelSourceError, PlanError: a model, format or length that cannot be planned.
    """

    def replan(changed: DeploymentSpec, on: Gpu | None) -> Plan:
        return _plan(
            changed,
            target=target,
            target_reason=target_reason,
            gpu=on,
            memory_bytes=_device_memory(target, on, host_memory_bytes),
            container=container if on is gpu or on is None or container_for is None else container_for(on),
            pinned=pinned,
            weights=weights or {},
            gguf_metadata=gguf_metadata or {},
            graphs=graphs or {},
        )

    plan = replan(spec, gpu)
    findings = list(plan.findings)
    if gpu_note:
        findings.append(Finding(id="gpu.assumed", severity="info", message=gpu_note))
    if not plan.fits and advice:
        trial = Trial(replan, check or (lambda plan, spec: ()))
        findings += advise(spec, plan, gpu, trial, fixed_gpu=fixed_gpu)
    return plan.model_copy(update={"findings": tuple(findings)})


def _plan(
    spec: DeploymentSpec,
    *,
    target: Target,
    target_reason: str,
    gpu: Gpu | None,
    memory_bytes: int,
    container: Container | None,
    pinned: Sequence[LlmPlan | VisionPlan],
    weights: Mapping[str, WeightsFile],
    gguf_metadata: Mapping[str, Mapping[str, Any]],
    graphs: Mapping[str, VisionSource],
) -> Plan:
    trtllm_version = container.trtllm if container else None
    beside_vision = bool(spec.vision) or any(isinstance(model, VisionPlan) for model in pinned)
    drafts, findings = _drafts(
        spec, target, gpu, weights, gguf_metadata, trtllm_version, beside_vision=beside_vision
    )
    visions = []
    for entry in spec.vision:
        vision, found = plan_vision(entry, graphs.get(entry.name))
        visions.append(vision)
        findings += found
        if gpu is not None and entry.precision == "fp8" and gpu.capability < _FP8_CAPABILITY:
            message = f"{entry.name}: {gpu.name} has compute capability {gpu.sm}, and fp8 begins at 8.9 (Ada)"
            findings.append(
                Finding(id="vision.fp8", severity="error", message=message, remedy="precision: int8 or fp16")
            )
    new_names = [draft.name for draft in drafts] + [vision.name for vision in visions]
    _refuse_twins(new_names)
    kept = [model for model in pinned if model.name not in new_names]
    if visions and target is not Target.LOCAL:
        findings += _long_steps(kept)
    shm_bytes = container.python_shm_bytes if container else constants.PYTHON_SHM_BYTES

    reserve = reserve_bytes(memory_bytes)
    empty = [draft.planned(concurrency=1, kv_tokens=0, reserve_bytes=reserve) for draft in drafts]
    shared, _ = _other_items([*kept, *visions], empty, target, memory_bytes, shm_bytes)
    room_bytes = memory_bytes - sum(item.bytes for item in shared)
    planned = [
        draft.planned(concurrency=part.concurrency, kv_tokens=part.kv_tokens, reserve_bytes=reserve)
        for draft, part in zip(drafts, share(drafts, room_bytes=room_bytes), strict=True)
    ]
    findings += _more_slots(spec, planned)
    others, host = _other_items([*kept, *visions], planned, target, memory_bytes, shm_bytes)
    ledger = [item for llm in planned for item in model_items(llm, target)] + others
    free_bytes = memory_bytes - sum(item.bytes for item in ledger)
    return Plan(
        target=target,
        target_reason=target_reason,
        gpu=GpuPlan(
            name=gpu.name if gpu else "CPU",
            memory_bytes=memory_bytes,
            sm=gpu.sm if gpu else None,
        ),
        container=container.release if container else None,
        trtllm_version=trtllm_version,
        models=(*kept, *planned, *visions),
        ledger=tuple(ledger),
        host_ledger=tuple(host),
        free_bytes=free_bytes,
        fits=free_bytes >= 0,
        findings=tuple(findings),
    )


def _device_memory(target: Target, gpu: Gpu | None, host_memory_bytes: int | None) -> int:
    if target is Target.LOCAL:
        if host_memory_bytes is None:
            raise PlanError("the target local needs to know how much RAM there is")
        return host_memory_bytes
    if gpu is None:
        raise PlanError(f"the target {target.value} is planned for a GPU, and none is named", "--gpu NAME")
    return gpu.memory_bytes


def _drafts(
    spec: DeploymentSpec,
    target: Target,
    gpu: Gpu | None,
    weights: Mapping[str, WeightsFile],
    gguf_metadata: Mapping[str, Mapping[str, Any]],
    trtllm_version: str | None,
    *,
    beside_vision: bool,
) -> tuple[list[Draft], list[Finding]]:
    drafts: list[Draft] = []
    findings: list[Finding] = []
    for llm in spec.models:
        name = name_of(llm)
        source = resolve(llm, weights=weights.get(name), gguf_metadata=gguf_metadata.get(name))
        draft, found = make_draft(
            source, target=target, gpu=gpu, trtllm_version=trtllm_version, beside_vision=beside_vision
        )
        drafts.append(draft)
        findings.extend(found)
    return drafts, findings


def _long_steps(kept: Sequence[LlmPlan | VisionPlan]) -> list[Finding]:
    """Language models that were planned before vision models came."""
    return [
        Finding(
            id="vision.steps",
            severity="info",
            message=f"{llm.name} keeps its steps of up to {llm.max_num_tokens} tokens, for one of which a "
            f"picture may wait; planned together they would be of {small}",
            remedy=f"max_num_tokens: {small} in the spec, where its engine may be built again",
        )
        for llm in kept
        if isinstance(llm, LlmPlan) and llm.chunked_context
        for small in [CHUNK_TOKENS_BESIDE_VISION + llm.max_batch_size]
        if llm.max_num_tokens > small
    ]


def _more_slots(spec: DeploymentSpec, planned: Sequence[LlmPlan]) -> list[Finding]:
    """What it means that a batch has more slots than the pool carries sequences."""
    return [
        Finding(
            id="kv.slots",
            severity="info",
            message=f"{row.name}: {row.max_batch_size} batch slots share a KV pool of {row.kv_tokens:,} "
            f"tokens, which carries {row.max_concurrency} sequences of the full length: beyond that requests "
            "wait for room (GUARANTEED_NO_EVICT) or are paused and computed anew (MAX_UTILIZATION)",
            remedy=f"--max-batch-size {max(1, row.max_concurrency)} promises every slot its whole length",
        )
        for llm, row in zip(spec.models, planned, strict=True)
        if llm.max_batch_size is not None and row.max_batch_size > row.max_concurrency
    ]


def _refuse_twins(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"two models of the spec are called {name!r}", "give one of them another `name`")


def _other_items(
    fixed: Sequence[LlmPlan | VisionPlan],
    planned: Sequence[LlmPlan],
    target: Target,
    memory_bytes: int,
    shm_bytes: int,
) -> tuple[list[LedgerItem], list[LedgerItem]]:
    """Device items but those of ``planned`` models, and the host's items (local: both are the device's)."""
    llms = [*(model for model in fixed if isinstance(model, LlmPlan)), *planned]
    visions = [model for model in fixed if isinstance(model, VisionPlan)]
    items: list[LedgerItem] = []
    for model in fixed:
        items += model_items(model, target) if isinstance(model, LlmPlan) else vision_items(model, target)
    host = list(host_items(llms, visions, target, shm_bytes=shm_bytes))
    if target is Target.LOCAL:
        items += host
        host = []
    else:
        items += gpu_process_items(llms, target, has_vision=bool(visions))
    items.append(reserve_item(memory_bytes, target))
    return items, host
