"""Servers of this user: which run, how they are, starting one that stays, and ending it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trtbuild.errors import ServeError
from trtbuild.serve import container, leftovers
from trtbuild.serve.lock import Lock
from trtbuild.serve.ports import Ports
from trtbuild.serve.process import is_alive, started_s
from trtbuild.serve.readiness import is_model_ready, is_ready
from trtbuild.serve.server import DRAIN_S, GRACE_S, check_repository
from trtbuild.serve.state import ServerRecord, StateFolder
from trtbuild.serve.wheel import find_wheel

POLL_S = 0.2
Health = Literal["ready", "starting", "not ready"]


@dataclass(frozen=True)
class ServerStatus:
    """``models``: readiness by model, asked of the server."""

    record: ServerRecord
    health: Health
    uptime_s: float
    models: dict[str, bool]


def running() -> list[ServerRecord]:
    """Records of servers whose owner lives, by repository."""
    records = (state.read() for state in StateFolder.all() if Lock(state.lock).held_elsewhere())
    return [record for record in records if record is not None]


def find(repository: Path) -> ServerRecord:
    """The running server of a repository.

    Raises:
        ServeError: when there is none.
    """
    state = StateFolder.of(repository)
    record = state.read()
    if record is None or not Lock(state.lock).held_elsewhere():
        raise ServeError(
            f"No server of {repository} runs here.", f"start one: trtbuild serve {repository} --detach"
        )
    return record


def status(repository: Path) -> ServerStatus:
    """How the server of a repository is. Raises ServeError when none runs."""
    record = find(repository)
    found = {config.parent.name for config in Path(record.repository).glob("*/config.pbtxt")}
    models = {
        name: name in found and is_model_ready(record.http_port, name)
        for name in sorted(found | _written(Path(record.repository)))
    }
    health: Health = (
        "starting" if not record.ready else "ready" if is_ready(record.http_port) else "not ready"
    )
    return ServerStatus(record, health, time.time() - record.server_started_s, models)


def _written(repository: Path) -> set[str]:
    """The folders that the repository's manifest names: a model whose folder is gone is not ready."""
    from trtbuild.errors import RepositoryError
    from trtbuild.repository.manifest import read_manifest

    try:
        manifest = read_manifest(repository)
    except RepositoryError:
        return set()
    return {name for unit in manifest.models.values() for name in unit.folders} if manifest else set()


def log_path(repository: Path) -> Path:
    """The newest log of a repository's server, also of one that has ended.

    Raises:
        ServeError: when it was never served.
    """
    log = StateFolder.of(repository).log
    if not log.exists():
        raise ServeError(f"{repository} was never served here; there is no log.")
    return log


def start_detached(
    repository: Path,
    *,
    ports: Ports | None = None,
    grace_s: float = GRACE_S,
    on_wait: Callable[[float], None] = lambda waited_s: None,
) -> ServerRecord:
    """Starts a supervisor that outlives this process, and returns when its server is ready.

    Raises:
        ServeError: when the server does not start, with the supervisor's own words.
    """
    check_repository(repository)
    if container.serves_on_gpu(repository):
        container.refuse_unless_possible(repository)
    else:
        find_wheel()
    state = StateFolder.of(repository)
    if Lock(state.lock).held_elsewhere():
        record = state.read()
        where = f" on 127.0.0.1:{record.grpc_port}" if record else ""
        raise ServeError(f"{repository} is served already{where}.", "use it, or end it first: trtbuild stop")
    state.path.mkdir(parents=True, exist_ok=True)
    wanted = ports or Ports()
    options = [f"--{name}={port}" for name, port in vars(wanted).items() if port is not None]
    starter = subprocess.run(
        [
            *(sys.executable, "-m", "trtbuild.serve.supervisor"),
            *(str(repository.resolve()), f"--grace={grace_s}", *options),
        ],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        check=True,
    )
    pid = int(starter.stdout)
    started = started_s(pid)
    try:
        return _wait_for_supervisor(pid, started, state, on_wait)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        raise


def _wait_for_supervisor(
    pid: int, started: float, state: StateFolder, on_wait: Callable[[float], None]
) -> ServerRecord:
    begun_s = time.monotonic()
    while is_alive(pid, started):
        record = state.read()
        if record is not None and record.owner_pid == pid and record.ready:
            return record
        on_wait(time.monotonic() - begun_s)
        time.sleep(POLL_S)
    raise _supervisor_error(state)


def _supervisor_error(state: StateFolder) -> ServeError:
    text = state.supervisor_log.read_text("utf-8", errors="replace").strip()
    _, _, reason = text.rpartition(f"{FAILED_MARK}\n")
    return ServeError(reason or "The supervisor ended without a word.", f"its log is {state.supervisor_log}")


FAILED_MARK = "--- the server cannot be kept running ---"  # in the supervisor's log, before the reason


def stop(repository: Path, *, grace_s: float = GRACE_S) -> ServerRecord:
    """Ends the server of a repository, whoever runs it, and returns its last record.

    Raises:
        ServeError: when none runs.
    """
    record = find(repository)
    state = StateFolder.of(repository)
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.owner_pid, signal.SIGTERM)
    deadline_s = time.monotonic() + grace_s + 2 * DRAIN_S
    while is_alive(record.owner_pid, record.owner_started_s) and time.monotonic() < deadline_s:
        if state.read() is None:  # the owner stopped it; it may live on
            return record
        time.sleep(POLL_S)
    if is_alive(record.owner_pid, record.owner_started_s):
        os.kill(record.owner_pid, signal.SIGKILL)
    lock = Lock(state.lock)
    if lock.take():
        leftovers.clean(state)
        lock.release()
    return record
