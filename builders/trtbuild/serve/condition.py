"""How each server of this user is, or how it ended: read from its folder, its lock and its own API.

starting, ready, not ready, stopping    its owner lives
restarting                              it failed, and its owner starts it again
stopped                                 it was told to
given up                                it did not start, or failed too often
killed                                  its owner was, and could not end it in order
machine restarted                       the same, with the machine
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trtbuild.errors import ServeError, in_shell
from trtbuild.serve.lock import Lock
from trtbuild.serve.process import is_alive, of_server
from trtbuild.serve.readiness import is_ready
from trtbuild.serve.state import EndKind, ServerEnd, ServerRecord, StateFolder, boot_id

Health = Literal["starting", "ready", "not ready", "restarting", "stopping"] | EndKind
_SAYS = {
    "starting": "is starting",
    "ready": "is ready",
    "not ready": "runs, and does not say that it is ready",
    "restarting": "is being started again",
    "stopping": "is being stopped",
    "stopped": "was stopped",
    "given up": "was given up",
    "killed": "was killed",
    "machine restarted": "ended when the machine was restarted",
}


@dataclass(frozen=True)
class Condition:
    """One server.

    Attributes:
        why: what went wrong; empty where ``health`` says all.
        grpc_port: where it listens, or did; None where it never got so far.
        since_s: when it was started or ended, seconds since the epoch.
        record: of one whose owner lives, once it has written it.
    """

    repository: Path
    health: Health
    why: str
    log: Path
    grpc_port: int | None
    since_s: float
    restarts: int
    record: ServerRecord | None = None

    @property
    def runs(self) -> bool:
        """Whether somebody keeps it running, or tries to."""
        return self.health in ("starting", "ready", "not ready", "restarting", "stopping")

    @property
    def failed(self) -> bool:
        """Whether it ended, and nobody had told it to."""
        return not self.runs and self.health != "stopped"

    def sentence(self) -> str:
        """What it is and why, such as "the server of R was given up: …"."""
        why = f": {self.why}" if self.why else ""
        return f"the server of {self.repository} {_SAYS[self.health]}{why}"

    def remedies(self) -> tuple[str, ...]:
        """What its user can do."""
        repository = in_shell(self.repository)
        start = f"start it again: trtbuild serve {repository} --detach"
        log = f"its log: trtbuild logs {repository}   ({self.log})"
        if self.health == "ready":
            return ()
        if self.health == "stopped":
            return (start,)
        if self.health in ("killed", "machine restarted"):
            return (start, log)
        if self.health == "stopping":
            return (f"once it has ended, {start}",)
        return (log, start) if self.health == "given up" else ("see trtbuild status", log)

    def start_again(self) -> str:
        """The commands that end it and start it on its port."""
        named = in_shell(self.repository)
        port = f" --grpc-port {self.grpc_port}" if self.grpc_port else ""
        return f"trtbuild stop {named} && trtbuild serve {named} --detach{port}"

    def error(self) -> ServeError:
        """The same as an error."""
        return ServeError(self.sentence(), *self.remedies())


def conditions() -> list[Condition]:
    """Of every repository that was served here and still exists, or whose server runs."""
    found = (condition_in(state) for state in StateFolder.all())
    return [item for item in found if item is not None and (item.runs or item.repository.is_dir())]


def condition_of(repository: Path) -> Condition | None:
    """Of one repository; None if it was never served here."""
    return condition_in(StateFolder.of(repository))


def condition_in(state: StateFolder) -> Condition | None:
    """Of the server of one state folder."""
    held = Lock(state.lock).held_elsewhere() if state.path.is_dir() else False
    record = state.read()
    if record is None:
        return _without_record(state, held)
    health, why = _living(record) if held else _orphaned(record)
    return Condition(
        Path(record.repository), health, why, state.log, record.grpc_port, record.server_started_s,
        record.restarts, record if held else None,
    )  # fmt: skip


def _without_record(state: StateFolder, held: bool) -> Condition | None:
    if held:  # its owner has the lock, and no process yet
        owner = Path(state.lock.read_text("utf-8", errors="surrogateescape"))
        return Condition(owner, "starting", "", state.log, None, time.time(), 0)
    end = state.read_end()
    return None if end is None else _ended(end)


def _ended(end: ServerEnd) -> Condition:
    return Condition(
        Path(end.repository), end.kind, end.why, Path(end.log), end.grpc_port, end.ended_s, end.restarts
    )


def _living(record: ServerRecord) -> tuple[Health, str]:
    if record.stopping:
        return "stopping", ""
    if not record.ready:
        return ("restarting", record.fault) if record.fault else ("starting", "")
    if is_ready(record.http_port):
        return "ready", ""
    if not is_alive(record.server_pid, record.server_started_s):
        return "restarting", "tritonserver ended"  # its owner looks once a second
    return "not ready", ""


def _orphaned(record: ServerRecord) -> tuple[Health, str]:
    """A record that nobody holds: its owner had no time to remove it."""
    if record.boot_id and record.boot_id != boot_id():
        return "machine restarted", ""
    left = len(of_server(record.server_id))
    rest = f"; {left} processes of it are still ending" if left else ""
    return "killed", f"process {record.owner_pid}, which kept it, is gone{rest}"
