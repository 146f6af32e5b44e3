"""Servers of this user: which run, how they are, starting one that stays, and ending it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from trtbuild.errors import ServeError, in_shell
from trtbuild.serve import container, leftovers
from trtbuild.serve.condition import Condition, Health, condition_of, conditions
from trtbuild.serve.lock import Lock
from trtbuild.serve.ports import Ports
from trtbuild.serve.process import is_alive, started_s
from trtbuild.serve.readiness import is_model_ready, is_unknown
from trtbuild.serve.server import DRAIN_S, GRACE_S, require_models, served_already
from trtbuild.serve.state import ServerRecord, StateFolder
from trtbuild.serve.wheel import find_wheel

POLL_S = 0.2
REACH_S = 60.0


@dataclass(frozen=True)
class ServerStatus:
    """``models``: readiness by model, asked of the server."""

    record: ServerRecord
    health: Health
    uptime_s: float
    models: dict[str, bool]


def running() -> list[ServerRecord]:
    """Records of servers whose owner lives, by repository."""
    return [item.record for item in conditions() if item.record is not None]


def find(repository: Path) -> ServerRecord:
    """The running server of a repository.

    Raises:
        ServeError: when there is none, with what became of the last one.
    """
    found = condition_of(repository)
    if found is None or found.record is None:
        raise _none_runs(repository, [found] if found is not None else [])
    return found.record


def reach(
    repository: Path | None,
    *,
    wait_s: float = REACH_S,
    waiting: Callable[[Condition], AbstractContextManager[None]] = lambda condition: nullcontext(),
) -> ServerRecord:
    """The server that is meant, as soon as it can be asked: of a repository, or the only one that runs here.

    One that is starting, or being started again, is waited for.

    Args:
        waiting: entered while it is, for a display.

    Raises:
        ServeError: none runs (with what became of the last one), several do, or it takes longer.
    """
    found = conditions() if repository is None else [item for item in [condition_of(repository)] if item]
    live = [item for item in found if item.runs]
    if len(live) > 1:
        raise ServeError(
            f"{len(live)} servers run here", *(f"--repo {in_shell(item.repository)}" for item in live)
        )
    if not live:
        raise _none_runs(repository, found)
    now: Condition | None = live[0]
    if now is not None and now.health in ("starting", "restarting"):
        with waiting(now):
            now = _settled(now, wait_s)
    if now is None or now.record is None or now.health not in ("ready", "not ready"):
        raise _none_runs(repository, []) if now is None else now.error()
    return now.record


def _settled(condition: Condition, wait_s: float) -> Condition | None:
    """Waits for a server that is starting."""
    deadline_s = time.monotonic() + wait_s
    now: Condition | None = condition
    while now is not None and now.health in ("starting", "restarting"):
        if time.monotonic() > deadline_s:
            raise ServeError(f"{now.sentence()}; it was waited for {wait_s:.0f} s", *now.remedies())
        time.sleep(POLL_S)
        now = condition_of(condition.repository)
    return now


def _none_runs(repository: Path | None, found: Sequence[Condition]) -> ServeError:
    """What to say where no server can be asked: what became of those that ran."""
    if repository is not None and found:
        return found[0].error()
    failed = [item for item in found if item.failed]
    if len(failed) == 1:
        return ServeError(f"no server runs here: {failed[0].sentence()}", *failed[0].remedies())
    if failed:
        return ServeError("no server runs here", *(item.sentence() for item in failed), "see trtbuild status")
    if repository is not None:
        start = f"start one: trtbuild serve {in_shell(repository)} --detach"
        return ServeError(f"No server of {repository} runs here.", start)
    return ServeError("no server runs here", "start one: trtbuild serve REPO --detach")


def status(repository: Path) -> ServerStatus:
    """How the server of a repository is. Raises ServeError when none runs."""
    found = condition_of(repository)
    if found is None or found.record is None:
        raise _none_runs(repository, [found] if found is not None else [])
    return ServerStatus(
        found.record, found.health, time.time() - found.record.server_started_s, models_of(found.record)
    )


def models_of(record: ServerRecord) -> dict[str, bool]:
    """Readiness of each model of a server's repository but `not_loaded`, as the server says."""
    from trtbuild.serve import contents

    repository = Path(record.repository)
    found = contents.folders(repository)
    manifest = contents.manifest_of(repository)
    written = (
        set(manifest.folders()) if manifest is not None else set()
    )  # one whose folder is gone: not ready
    return {
        name: name in found and is_model_ready(record.http_port, name)
        for name in sorted((found | written) - not_loaded(record))
    }


def not_loaded(record: ServerRecord) -> set[str]:
    """Models that lie whole in a server's repository, and came after it had been started."""
    from trtbuild.serve import contents

    repository = Path(record.repository)
    whole = contents.folders(repository) - contents.left_out(repository).keys()
    return {name for name in whole if is_unknown(record.http_port, name)}


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
    require_models(repository)
    if container.serves_on_gpu(repository):
        container.refuse_unless_possible(repository)
    else:
        find_wheel()
    state = StateFolder.of(repository)
    if Lock(state.lock).held_elsewhere():
        raise served_already(repository, state.read())
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

    Of one that was killed with its owner, what is left is ended and removed.

    Raises:
        ServeError: when none runs, and nothing of one is left.
    """
    state = StateFolder.of(repository)
    record = _claimed_record(repository, state)
    if is_alive(record.owner_pid, record.owner_started_s):
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
        state.ended(record, record.repository, "stopped")
        lock.release()
    return record


def _claimed_record(repository: Path, state: StateFolder) -> ServerRecord:
    """The record of a server that runs, has just been claimed, or was killed."""
    found = condition_of(repository)
    while found is not None and found.health == "starting" and (record := state.read()) is None:
        time.sleep(POLL_S)  # its owner has no process yet, or gives up before it has one
        found = condition_of(repository)
    record = state.read()
    if record is None:
        raise _none_runs(repository, [found] if found is not None else [])
    return record
