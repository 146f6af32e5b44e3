"""One folder a server: its record, log and backends, outside of the repository.

<state root>/servers/<repository's name>-<digest of its path>/
    lock             held by the process that runs the server, as long as it lives
    server.json      who runs and where it listens
    server.log       of the current run; server.log.1 of the one before
    supervisor.log   of a detached server
    backends/        assembled for this run
    drain            tells the engines that the grace time is over
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

SCHEMA = 1


@dataclass(frozen=True)
class ServerRecord:
    """A server that runs or ran.

    Processes are named by pid and start time (seconds since the epoch), because a pid is used again.
    ``server_id``: prefix of its shared memory, and the mark in its processes' environments.
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

    @property
    def shm_prefix(self) -> str:
        return self.server_id


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
            data = json.loads(self._record.read_text("utf-8"))
            if data.pop("schema") != SCHEMA:
                return None
            return ServerRecord(**data)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, record: ServerRecord) -> None:
        """Replaces the record in one step."""
        beside = self._record.with_suffix(".tmp")
        beside.write_text(json.dumps({"schema": SCHEMA, **asdict(record)}, indent=2) + "\n", "utf-8")
        beside.replace(self._record)

    def forget(self) -> None:
        """Removes the record."""
        self._record.unlink(missing_ok=True)
