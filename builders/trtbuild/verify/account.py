"""The plan's memory account beside what the machine and TensorRT-LLM's own log say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trtbuild.build.engine_log import EngineLog
from trtbuild.plan.model import LlmPlan, Plan
from trtbuild.reconcile import ALIKE, ratio_of_weights
from trtbuild.serve.usage import measure
from trtbuild.spec import Target
from trtbuild.targets import ask_nvidia_smi

_MIB = 1 << 20


@dataclass(frozen=True)
class Line:
    """One item: planned, and found by ``source``; bytes. ``found`` above ``planned`` is a promise broken."""

    item: str
    planned_bytes: int
    found_bytes: int
    source: str

    @property
    def holds(self) -> bool:
        return self.found_bytes <= self.planned_bytes


def planned_by_owner(plan: Plan) -> dict[str, int]:
    """Planned bytes by model, KV pools apart; what is no model's is the server's; and /dev/shm."""
    owners: dict[str, int] = {}
    for item in plan.ledger:
        if item.item == "reserve":
            continue
        owner = "/dev/shm" if item.where == "shm" else item.model or "tritonserver"
        if item.item.endswith(" KV pool"):
            owner = item.item
        owners[owner] = owners.get(owner, 0) + item.bytes
    return owners


def account(
    plan: Plan,
    *,
    server_pid: int,
    shm_prefix: str,
    log: Sequence[EngineLog],
    gpu: Sequence[Mapping[str, Any]],
    server_gpu_bytes: int | None = None,
) -> list[Line]:
    """Every item that something here can tell.

    Args:
        log: the engines that the server's log tells of, in its order; of one that was loaded again the last
            counts.
        gpu: see `read_gpus`.
        server_gpu_bytes: what the process tritonserver holds of the GPU; None: not known.
    """
    if plan.target is Target.LOCAL:
        used = measure(server_pid, shm_prefix, [model.name for model in plan.models])
        planned = planned_by_owner(plan)
        return [
            Line(name, planned[name], found, "proportional set size of its processes")
            for name, found in used.items()
            if name in planned
        ]
    lines = []
    for llm, engine in engines_by_model(log, plan):
        for item, planned_bytes, found_bytes in _items(llm, engine):
            if found_bytes is not None:
                lines.append(Line(f"{llm.name} {item}", planned_bytes, found_bytes, "TensorRT-LLM's log"))
    if server_gpu_bytes is not None and _engines_are_processes(plan):
        lines.append(Line("tritonserver's process", _of_the_server(plan), server_gpu_bytes, "nvidia-smi"))
    if gpu:
        reserve = sum(item.bytes for item in plan.ledger if item.item == "reserve")
        total = sum(item.bytes for item in plan.ledger if item.where == "gpu") - reserve
        lines.append(Line("everything on the GPU", total, int(gpu[0]["used_bytes"]), "nvidia-smi"))
    return lines


def engines_by_model(log: Sequence[EngineLog], plan: Plan) -> list[tuple[LlmPlan, EngineLog]]:
    """The engines of a log with the models that they are of, by their weights and limits.

    Models that nothing in an engine's lines tells apart share its figures only where their plans are the
    same; else the engine is left out, because a comparison with the wrong plan would prove nothing.
    """
    left = list(plan.llms)
    found = []
    for engine in reversed(log):
        alike = [llm for llm in left if _may_be(llm, engine)]
        if len(plan.llms) == 1:
            alike = left
        if not alike or len({_planned(llm) for llm in alike}) > 1:
            continue
        found.append((alike[0], engine))
        left.remove(alike[0])
    return sorted(found, key=lambda pair: plan.llms.index(pair[0]))


def _may_be(llm: LlmPlan, engine: EngineLog) -> bool:
    if engine.weights is None or ratio_of_weights(llm, engine.weights) > ALIKE:
        return False
    limits = ((engine.max_batch_size, llm.max_batch_size), (engine.max_num_tokens, llm.max_num_tokens))
    return all(said is None or said == planned for said, planned in limits)


def _planned(llm: LlmPlan) -> tuple[int, ...]:
    held = llm.weights_bytes + llm.engine_copy_bytes + llm.vision_tower_bytes
    return held, llm.activation_bytes, llm.buffer_bytes, llm.kv_bytes


def _items(llm: LlmPlan, engine: EngineLog) -> list[tuple[str, int, int | None]]:
    said = (engine.weights, engine.activation, engine.buffers, engine.kv)
    names = ("weights", "activations", "buffers", "KV pool")
    return list(zip(names, _planned(llm), said, strict=True))


def _engines_are_processes(plan: Plan) -> bool:
    """Whether engines run beside tritonserver: all of the LLM API's, and compiled ones from two on."""
    return plan.target is Target.LLMAPI or sum(llm.instances for llm in plan.llms) != 1


def _of_the_server(plan: Plan) -> int:
    llms = {llm.name for llm in plan.llms}
    return sum(
        item.bytes
        for item in plan.ledger
        if item.where == "gpu"
        and item.model not in llms
        and item.item not in ("reserve", "CUDA contexts of engines")
    )


def read_server_gpu_bytes() -> int | None:
    """What processes called tritonserver hold of the GPUs; None where the driver does not tell."""
    rows = ask_nvidia_smi("--query-compute-apps=process_name,used_memory")
    sizes = [
        int(row[1]) * _MIB
        for row in rows
        if len(row) == 2 and row[0].endswith("tritonserver") and row[1].strip().isdigit()
    ]
    return sum(sizes) if sizes else None


def read_gpus() -> list[dict[str, Any]]:
    """Name, driver and memory of each GPU as the driver tells them (NVML, through nvidia-smi)."""
    rows = ask_nvidia_smi("--query-gpu=name,driver_version,compute_cap,memory.total,memory.used")
    return [
        {
            "name": row[0],
            "driver": row[1],
            "compute_capability": row[2],
            "total_bytes": int(row[3]) * _MIB,
            "used_bytes": int(row[4]) * _MIB,
        }
        for row in rows
        if len(row) == 5 and row[3].strip().isdigit() and row[4].strip().isdigit()
    ]
