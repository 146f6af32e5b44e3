"""What a running server holds: memory of its processes by model, and /dev/shm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_SHM = Path("/dev/shm")


def measure(pid: int, shm_prefix: str, models: Sequence[str]) -> dict[str, int]:
    """Bytes by owner: each model of the plan, ``tritonserver``, and ``/dev/shm``.

    A process counts with its proportional set size (a page that n processes share counts 1/n in each), so
    that the sum is what the machine really spends. Stub processes belong to the model whose instance they run.
    """
    import psutil

    used: dict[str, int] = {}
    server = psutil.Process(pid)
    owners = {pid: "tritonserver"}
    for process in (server, *server.children(recursive=True)):
        try:
            owner = (
                owners.get(process.pid)
                or _owner(process, models)
                or owners.get(process.ppid(), "tritonserver")
            )
            owners[process.pid] = owner
            used[owner] = used.get(owner, 0) + process.memory_full_info().pss
        except psutil.Error:  # it ended meanwhile
            continue
    used["/dev/shm"] = sum(file.stat().st_blocks * 512 for file in _SHM.glob(f"{shm_prefix}*"))
    return used


def _owner(process: object, models: Sequence[str]) -> str | None:
    """The model of a stub, by the instance name among its arguments: ``<folder>_<number>_<number>``."""
    arguments = process.cmdline()  # type: ignore[attr-defined]
    for argument in arguments:
        for model in sorted(models, key=len, reverse=True):
            if argument == model or argument.startswith((f"{model}_", f"{model}/")):
                return model
    return None
