"""The plan's memory account beside what the machine and TensorRT-LLM's own log say."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trtbuild.build.engine_log import EngineLog
from trtbuild.plan.model import Plan
from trtbuild.serve.usage import measure
from trtbuild.spec import Target
from trtbuild.targets import NVIDIA_SMI_TIMEOUT_S

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
) -> list[Line]:
    """Every item that something here can tell."""
    if plan.target is Target.LOCAL:
        used = measure(server_pid, shm_prefix, [model.name for model in plan.models])
        planned = planned_by_owner(plan)
        return [
            Line(name, planned[name], found, "proportional set size of its processes")
            for name, found in used.items()
            if name in planned
        ]
    lines = []
    if len(plan.llms) == 1 and log:
        llm, engine = plan.llms[0], log[-1]
        held = llm.weights_bytes + llm.engine_copy_bytes + llm.vision_tower_bytes
        for item, planned_bytes, found_bytes in (
            ("weights", held, engine.weights),
            ("activations", llm.activation_bytes, engine.activation),
            ("buffers", llm.buffer_bytes, engine.buffers),
            ("KV pool", llm.kv_bytes, engine.kv),
        ):
            if found_bytes is not None:
                lines.append(Line(f"{llm.name} {item}", planned_bytes, found_bytes, "TensorRT-LLM's log"))
    if gpu:
        reserve = sum(item.bytes for item in plan.ledger if item.item == "reserve")
        total = sum(item.bytes for item in plan.ledger if item.where == "gpu") - reserve
        lines.append(Line("everything on the GPU", total, int(gpu[0]["used_bytes"]), "nvidia-smi"))
    return lines


def read_gpus() -> list[dict[str, Any]]:
    """Name, driver and memory of each GPU as the driver tells them (NVML, through nvidia-smi)."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [
        tool,
        "--query-gpu=name,driver_version,compute_cap,memory.total,memory.used",
        "--format=csv,noheader,nounits",
    ]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [
        {
            "name": row[0],
            "driver": row[1],
            "compute_capability": row[2],
            "total_bytes": int(row[3]) * _MIB,
            "used_bytes": int(row[4]) * _MIB,
        }
        for row in csv.reader(answer.stdout.splitlines(), skipinitialspace=True)
        if len(row) == 5 and row[3].strip().isdigit() and row[4].strip().isdigit()
    ]
