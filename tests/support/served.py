"""Records and locks as a running server's owner has them, without a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trtbuild.serve.lock import Lock
from trtbuild.serve.process import started_s
from trtbuild.serve.state import ServerRecord, StateFolder, boot_id


def record_of(repository: Path, **changes: object) -> ServerRecord:
    """A record of a server that this process keeps and is."""
    started = started_s(os.getpid())
    made = ServerRecord(
        repository=str(repository), owner_pid=os.getpid(), owner_started_s=started, server_pid=os.getpid(),
        server_started_s=started, server_id="trtbuild-test-", grpc_port=1, http_port=1, metrics_port=1,
        detached=True, ready=True, restarts=0, log=str(StateFolder.of(repository).log), boot_id=boot_id(),
    )  # fmt: skip
    return replace(made, **changes)


@contextmanager
def kept(repository: Path, record: ServerRecord | None = None) -> Iterator[StateFolder]:
    """Somebody holds the repository's lock, with this record."""
    state = StateFolder.of(repository)
    lock = Lock(state.lock)
    assert lock.take(str(repository))
    if record is not None:
        state.write(record)
    try:
        yield state
    finally:
        lock.release()
