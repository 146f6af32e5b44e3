"""Whether /dev/shm has room for the Python processes of a repository: to start, and as they grow."""

from __future__ import annotations

import shutil
from pathlib import Path

from trtbuild.errors import ServeError
from trtbuild.serve import contents, shm
from trtbuild.serve.lock import Lock
from trtbuild.serve.state import StateFolder

_MIB = 2**20
_REMEDIES = (
    f"remove what is left over there (ls -l {shm.SHM})",
    "in a container, start it with a larger --shm-size",
)


def check_room(repository: Path) -> None:
    """Raises ServeError when /dev/shm cannot hold the processes' regions as they start.

    Each Python instance takes a region when it starts (shm-default-byte-size of the Python backend, 1 MiB)
    and grows it by as much when its tensors need more; one such step is asked for.
    """
    instances = sum(
        sum(group.count or 1 for group in config.instance_group) or 1
        for config in contents.configs(repository).values()
        if not config.HasField("ensemble_scheduling")
    )
    needed, free = 2 * instances * shm.REGION_BYTES, _free_bytes()
    if free < needed:
        raise ServeError(
            f"{shm.SHM} has {free / _MIB:.1f} MiB free, and the {instances} Python processes of {repository} "
            f"need {needed / _MIB:.0f} MiB of shared memory.",
            *_REMEDIES,
        )


def shortage(repository: Path) -> str | None:
    """What to say where /dev/shm holds the start, and not what the plan counts for full load.

    Regions never shrink, and those of servers that run here may still grow to what their plans count. Small
    requests are served all the same: no reason to refuse the start.
    """
    plan = contents.plan_of(repository)
    needed = plan.shm_bytes if plan is not None else 0
    promised, free = _promised_bytes(repository), _free_bytes()
    if free - promised >= needed:
        return None
    others = f", of which servers that run here may take {promised / _MIB:.0f} MiB" if promised else ""
    return (
        f"{shm.SHM} has {free / _MIB:.0f} MiB free{others}, and the plan counts {needed / _MIB:.0f} MiB: "
        "large pictures, or many requests at once, will fail once it is full"
        + "".join(f"\n  → {remedy}" for remedy in _REMEDIES)
    )


def _free_bytes() -> int:
    return shutil.disk_usage(shm.SHM).free


def _promised_bytes(repository: Path) -> int:
    """What regions of other servers may still grow by."""
    promised = 0
    for state in StateFolder.all():
        record = state.read()
        if record is None or record.on_gpu or record.repository == str(repository.resolve()):
            continue
        plan = contents.plan_of(Path(record.repository))
        if plan is not None and Lock(state.lock).held_elsewhere():
            promised += max(0, plan.shm_bytes - shm.allocated_bytes(record.server_id))
    return promised
