"""One folder a server: its record, log and backends, outside of the repository.

<state root>/servers/<repository's name>-<digest of its path>/
    lock             held by the process that runs the server, as long as it lives
    server.json      who runs and where it listens, while it does
    ended.json       how the last run ended, until the next one begins
    server.log       of the current run; server.log.1 of the one before
    supervisor.log   of a detached server
    backends/        assembled for this run
    drain            tells the engines that the grace time is over
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

SCHEMA = 1


@dataclass(frozen=True)
class ServerRecord:
    """A server that runs or ran.

    Processes are named by pid and start time (seconds since the epoch), because a pid is used again.
    ``server_id``: prefix of its shared memory, and the mark in its processes' environments. ``fault``: why it
    was last started again. ``boot_id``: of the machine's run, as the kernel names it.
    """

    repository: str
    owner_pid: int  # who started it and ends it: a foreground command, a supervisor, a test
    owner_started_s: float
    server_pid: int
    server_started_s: float
    server_id: str
    grpc_port: int
    http_port: int
    metrics_port: int
    detached: bool
    ready: bool
    restarts: int
    log: str
    on_gpu: bool = False  # it runs in a container, or in NVIDIA's image
    stopping: bool = False
    fault: str | None = None
    boot_id: str = ""

    @property
    def shm_prefix(self) -> str:
        return self.server_id


EndKind = Literal["stopped", "given up", "killed", "machine restarted"]


@dataclass(frozen=True)
class ServerEnd:
    """How a server ended. ``ended_s``: seconds since the epoch, of when it was noticed."""

    repository: str
    kind: EndKind
    why: str
    log: str
    grpc_port: int | None = None
    restarts: int = 0
    ended_s: float = 0.0


def boot_id() -> str:
    """The kernel's name for this run of the machine; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def state_root() -> Path:
    """``TRTBUILD_STATE``, else the user's XDG state folder."""
    named = os.environ.get("TRTBUILD_STATE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "trtbuild"


class StateFolder:
    """The folder of one repository's server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.log = path / "server.log"
        self.supervisor_log = path / "supervisor.log"
        self.backends = path / "backends"
        self.drain = path / "drain"
        self._record = path / "server.json"
        self._end = path / "ended.json"

    @classmethod
    def of(cls, repository: Path) -> StateFolder:
        """Two paths to one folder have one state."""
        real = repository.resolve()
        digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
        return cls(state_root() / "servers" / f"{real.name}-{digest}")

    @classmethod
    def all(cls) -> list[StateFolder]:
        """Every folder under the state root."""
        return [cls(path) for path in sorted((state_root() / "servers").glob("*/"))]

    def read(self) -> ServerRecord | None:
        """The record; None if there is none, or one of another version or cut short by a crash."""
        try:
            return ServerRecord(**_read(self._record))
        except TypeError:  # fields are missing, or others there
            return None

    def write(self, record: ServerRecord) -> None:
        """Replaces the record in one step."""
        _write(self._record, record)

    def forget(self) -> None:
        """Removes the record."""
        self._record.unlink(missing_ok=True)

    def read_end(self) -> ServerEnd | None:
        """How the last run ended; None if it is not known."""
        try:
            return ServerEnd(**_read(self._end))
        except TypeError:  # fields are missing, or others there
            return None

    def ended(self, record: ServerRecord | None, repository: str, kind: EndKind, why: str = "") -> None:
        """Keeps how a run ended, and removes its record. A full disk keeps nothing."""
        end = ServerEnd(
            repository=repository,
            kind=kind,
            why=why,
            log=str(self.log),
            grpc_port=record.grpc_port if record else None,
            restarts=record.restarts if record else 0,
            ended_s=time.time(),
        )
        with contextlib.suppress(OSError):
            _write(self._end, end)
        self.forget()

    def forget_end(self) -> None:
        """A new run begins."""
        self._end.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """The fields of a file of this version; empty if there is none, or one that a crash cut short."""
    try:
        data = json.loads(path.read_text("utf-8"))
        return data if isinstance(data, dict) and data.pop("schema", None) == SCHEMA else {}
    except (OSError, ValueError):
        return {}


def _write(path: Path, content: ServerRecord | ServerEnd) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps({"schema": SCHEMA, **asdict(content)}, indent=2) + "\n", "utf-8")
    beside.replace(path)
