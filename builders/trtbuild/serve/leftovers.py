"""What a server left that was killed together with its owner: processes, shared memory, its record."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from trtbuild.serve import container, shm
from trtbuild.serve.lock import Lock
from trtbuild.serve.process import end_all
from trtbuild.serve.state import StateFolder, boot_id


@dataclass(frozen=True)
class Leftover:
    """What was cleaned of one server."""

    repository: str
    processes: int
    regions: int


def clean(state: StateFolder) -> Leftover | None:
    """Cleans after a server whose owner is gone; the caller holds its lock. None if there was nothing."""
    record = state.read()
    shutil.rmtree(state.backends, ignore_errors=True)
    state.drain.unlink(missing_ok=True)
    if record is None:
        return None
    if record.on_gpu:
        container.remove(record.server_id)
    processes = end_all(record.server_id)
    regions = shm.sweep(record.server_id)
    if record.boot_id and record.boot_id != boot_id():
        state.ended(record, record.repository, "machine restarted")
    else:
        state.ended(
            record, record.repository, "killed", f"process {record.owner_pid}, which kept it, is gone"
        )
    return Leftover(record.repository, processes, len(regions))


def clean_all() -> list[Leftover]:
    """Cleans after every server whose lock nobody holds."""
    found = []
    for state in StateFolder.all():
        lock = Lock(state.lock)
        if state.read() is not None and lock.take():
            try:
                leftover = clean(state)
            finally:
                lock.release()
            if leftover is not None:
                found.append(leftover)
    return found
