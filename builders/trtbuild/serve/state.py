"""One folder a server: its record, log and backends, outside of the repository.

<state root>/servers/<repository's name>-<digest of its path>/
    server.json    who runs, where it listens; written when the process starts
    server.log     of the current run; server.log.1 of the one before
    backends/      assembled for this run
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
    """A server that runs or ran. ``pid_started``: the process's start time, so that a reused pid is known."""

    repository: str
    pid: int
    pid_started: float
    supervisor_pid: int
    shm_prefix: str
    grpc_port: int
    http_port: int
    metrics_port: int
    detached: bool


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

    @classmethod
    def of(cls, repository: Path) -> StateFolder:
        real = repository.resolve()
        digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
        return cls(state_root() / "servers" / f"{real.name}-{digest}")

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    @property
    def backends(self) -> Path:
        return self.path / "backends"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def _record(self) -> Path:
        return self.path / "server.json"

    def read(self) -> ServerRecord | None:
        """The record; None if there is none, or one of another version or cut short by a crash."""
        try:
            data = json.loads(self._record.read_text("utf-8"))
            if data.pop("schema") != SCHEMA:
                return None
            return ServerRecord(**data)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, record: ServerRecord) -> None:
        """Replaces the record in one step."""
        beside = self._record.with_suffix(".tmp")
        beside.write_text(json.dumps({"schema": SCHEMA, **asdict(record)}, indent=2) + "\n", "utf-8")
        beside.replace(self._record)

    def forget(self) -> None:
        """Removes the record."""
        self._record.unlink(missing_ok=True)
