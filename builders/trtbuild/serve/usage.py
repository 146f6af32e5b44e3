"""What a running server holds: memory of its processes by model, and /dev/shm."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from trtbuild.serve import shm


def measure(pid: int, shm_prefix: str, models: Sequence[str]) -> dict[str, int]:
    """Bytes by owner: each model of the plan, ``tritonserver``, and ``/dev/shm``.

    A process counts with its proportional set size (a page that n processes share counts 1/n in each), so
    that the sum is what the machine really spends. A stub belongs to the model whose instance it runs, and
    its own children with it.
    """
    import psutil

    used: dict[str, int] = {}
    owners = {pid: "tritonserver"}
    server = psutil.Process(pid)
    for process in (server, *server.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it may end meanwhile
            inherited = owners.get(process.pid) or owners.get(process.ppid(), "tritonserver")
            owner = _model(process.cmdline(), models) or inherited
            owners[process.pid] = owner
            used[owner] = used.get(owner, 0) + process.memory_full_info().pss
    used["/dev/shm"] = shm.allocated_bytes(shm_prefix)
    return used


def _model(arguments: Sequence[str], models: Sequence[str]) -> str | None:
    """The model of a stub, by the instance name among its arguments: ``<folder>_<number>_<number>``."""
    for model in sorted(models, key=len, reverse=True):
        if any(argument.startswith(f"{model}_") for argument in arguments):
            return model
    return None
