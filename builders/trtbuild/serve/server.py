"""A tritonserver on this machine: start, readiness, stop."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from trtbuild.errors import ServeError, in_shell
from trtbuild.repository.transaction import finish_interrupted
from trtbuild.serve import container, contents, leftovers, room, shm
from trtbuild.serve.backends import assemble_backends
from trtbuild.serve.command import server_command, server_environment
from trtbuild.serve.lock import Lock
from trtbuild.serve.ports import LOOPBACK, Ports, choose_ports
from trtbuild.serve.process import end_all, start_child, started_s, stubs_of
from trtbuild.serve.readiness import is_ready, wait_ready
from trtbuild.serve.state import EndKind, ServerRecord, StateFolder, boot_id
from trtbuild.serve.wheel import find_wheel

READY_TIMEOUT_S = 900.0
GRACE_S = 10.0
DRAIN_S = 10.0  # for cancelled requests to be answered and models to unload


@dataclass(frozen=True)
class Claim:
    """The right to serve a repository, held until ``give_up`` or the end of this process."""

    repository: Path
    state: StateFolder
    lock: Lock
    on_gpu: bool = False

    def give_up(self) -> None:
        """Lets the repository go."""
        self.state.forget()
        self.lock.release()

    def ended(self, kind: EndKind, why: str = "") -> None:
        """Lets the repository go, and keeps how its server ended."""
        self.state.ended(self.state.read(), str(self.repository.resolve()), kind, why)
        self.lock.release()


class Server:
    """A running server. As a context manager it is stopped at the end."""

    def __init__(
        self, process: subprocess.Popen[bytes], record: ServerRecord, claim: Claim, grace_s: float
    ) -> None:
        self._process = process
        self._claim = claim
        self._grace_s = grace_s
        self.record = record
        self.stubs: dict[int, float] = {}  # pid and start time, as they were when it became ready

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def shm_prefix(self) -> str:
        return self.record.server_id

    @property
    def grpc_address(self) -> str:
        return f"{LOOPBACK}:{self.record.grpc_port}"

    @property
    def http_address(self) -> str:
        return f"{LOOPBACK}:{self.record.http_port}"

    @property
    def metrics_address(self) -> str:
        return f"{LOOPBACK}:{self.record.metrics_port}"

    @property
    def log_path(self) -> Path:
        return Path(self.record.log)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def is_ready(self) -> bool:
        """Whether the server says that all its models are ready."""
        return is_ready(self.record.http_port)

    def wait_ready(self, timeout_s: float, on_wait: Callable[[float], None] | None = None) -> None:
        """Returns when all models are ready.

        Raises:
            ServeError: when it ends before, or the time is over, with what the log says.
        """
        port = self.record.http_port
        if self.record.on_gpu:
            timeout_s = max(timeout_s, container.READY_TIMEOUT_S)
        wait_ready(self._process, http_port=port, log=self.log_path, timeout_s=timeout_s, on_wait=on_wait)
        self.stubs = {} if self.record.on_gpu else stubs_of(self.pid)
        self.record = replace(self.record, ready=True)
        self._claim.state.write(self.record)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The server's exit code once it has ended by itself; None if the time is over first."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def ask_to_stop(self) -> None:
        """Tells the server to take no new requests, and to end when those in flight have."""
        self._keep(replace(self.record, stopping=True))
        if self.exit_code is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, grace_s: float | None = None) -> None:
        """Ends the server as `end` does, and lets the repository go."""
        self.end(grace_s)
        self._claim.give_up()

    def end(self, grace_s: float | None = None) -> None:
        """Ends the server and removes what it made; the repository stays claimed.

        No new requests are taken; those in flight may finish within the grace time, then the engines cancel
        them; a server that still does not end is killed.
        """
        grace_s = self._grace_s if grace_s is None else grace_s
        if self.exit_code is None:
            self.ask_to_stop()
            if self.wait(grace_s) is None:
                self._claim.state.drain.touch()
                self.wait(DRAIN_S)
        self.kill()

    def kill(self, fault: str | None = None) -> None:
        """Ends the server and its stubs at once, and removes what it made; the repository stays claimed.

        Args:
            fault: why, if it is to be started again.
        """
        self._keep(replace(self.record, ready=False, fault=fault or self.record.fault))
        if self.record.on_gpu:
            container.remove(self.record.server_id)  # while its client can still say what happened
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # also stubs that outlive their server
        self._process.wait()
        end_all(self.record.server_id)
        shm.sweep(self.record.server_id)
        state = self._claim.state
        shutil.rmtree(state.backends, ignore_errors=True)
        state.drain.unlink(missing_ok=True)

    def _keep(self, record: ServerRecord) -> None:
        """Writes the record. A full disk keeps nobody from ending a server."""
        self.record = record
        with contextlib.suppress(OSError):
            self._claim.state.write(record)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(
    repository: Path,
    *,
    ports: Ports | None = None,
    grace_s: float = GRACE_S,
    ready_timeout_s: float = READY_TIMEOUT_S,
    on_wait: Callable[[float], None] | None = None,
) -> Server:
    """Starts a server of ``repository`` and returns when all its models are ready.

    It listens on the loopback address alone, and ends with this process.

    Args:
        on_wait: called about ten times a second with the seconds waited, for a progress display.

    Raises:
        ServeError: when there is no tritonserver for this environment, the repository is served already, a
            port is taken, or the server does not get ready.
    """
    claimed = claim(repository)
    try:
        server = launch(claimed, ports=ports or Ports(), grace_s=grace_s)
    except BaseException:
        claimed.give_up()
        raise
    try:
        server.wait_ready(ready_timeout_s, on_wait)
    except BaseException:
        server.stop(grace_s=0)
        raise
    return server


def claim(repository: Path) -> Claim:
    """Takes the sole right to serve a repository, and cleans up what earlier servers and writers left.

    Raises:
        ServeError: when the folder is no repository, is served already, or /dev/shm is full.
        RepositoryError: when another process is writing to it.
    """
    require_models(repository)
    on_gpu = container.serves_on_gpu(repository)
    if on_gpu:
        container.refuse_unless_possible(repository)
    state = StateFolder.of(repository)
    lock = Lock(state.lock)
    if not lock.take(str(repository.resolve())):
        raise served_already(repository, state.read())
    try:
        leftovers.clean(state)
        leftovers.clean_all()
        if not on_gpu:  # a container brings its own /dev/shm
            room.check_room(repository)
    except BaseException:
        lock.release()
        raise
    return Claim(repository, state, lock, on_gpu)


def launch(
    claim: Claim,
    *,
    ports: Ports,
    grace_s: float,
    detached: bool = False,
    restarts: int = 0,
    fault: str | None = None,
) -> Server:
    """Starts the process and writes the record; does not wait.

    Args:
        restarts, fault: how often it was started again, and why at last.

    Raises:
        ServeError: when there is no tritonserver for this environment, or a port is taken.
    """
    wheel = None if claim.on_gpu else find_wheel()
    models = contents.loadable(claim.repository)
    if claim.on_gpu and models is not None:
        raise ServeError(contents.caution(claim.repository) or "", "its container loads all models or none")
    state = claim.state
    chosen = choose_ports(ports)
    server_id = shm.new_server_id()
    if state.log.exists():
        state.log.replace(state.log.with_name("server.log.1"))
    if wheel is None:
        command = container.command(claim.repository)
        environment = container.environment(server_id, chosen, os.environ)
    else:
        assemble_backends(wheel, state.backends)
        command = server_command(
            wheel,
            backends=state.backends,
            ports=chosen,
            server_id=server_id,
            models=models,
            exit_timeout_s=math.ceil(grace_s + DRAIN_S),
        )
        environment = server_environment(
            wheel, ports=chosen, server_id=server_id, drain_file=state.drain, base=os.environ
        )
    process = start_child(command, cwd=claim.repository, environment=environment, log=state.log)
    record = ServerRecord(
        repository=str(claim.repository.resolve()),
        owner_pid=os.getpid(),
        owner_started_s=started_s(os.getpid()),
        server_pid=process.pid,
        server_started_s=started_s(process.pid),
        server_id=server_id,
        grpc_port=chosen.grpc,
        http_port=chosen.http,
        metrics_port=chosen.metrics,
        detached=detached,
        ready=False,
        restarts=restarts,
        log=str(state.log),
        on_gpu=claim.on_gpu,
        fault=fault,
        boot_id=boot_id(),
    )
    server = Server(process, record, claim, grace_s)
    try:
        state.write(record)
        state.forget_end()
    except OSError:
        server.kill()  # nobody could find it
        raise
    return server


def require_models(repository: Path) -> None:
    """Finishes a change that a killed writer left half applied, and checks that there is a model to serve.

    Raises:
        ServeError: when the folder holds no model.
        RepositoryError: when another process is writing to it.
    """
    finish_interrupted(repository)
    if not repository.is_dir():
        raise ServeError(f"{repository} is not a folder.", "generate a repository first: trtbuild --model …")
    if not any(repository.glob("*/config.pbtxt")):
        raise ServeError(
            f"{repository} holds no model: no folder in it has a config.pbtxt.",
            "name the repository itself, or generate one: trtbuild --model …",
        )


def served_already(repository: Path, record: ServerRecord | None) -> ServeError:
    """The error for a repository that another process serves, with where, if its record is written."""
    where = f" by process {record.owner_pid}, gRPC on {LOOPBACK}:{record.grpc_port}" if record else ""
    return ServeError(
        f"{repository} is served already{where}.",
        f"use it, or end it first: trtbuild stop {in_shell(repository)}",
    )
