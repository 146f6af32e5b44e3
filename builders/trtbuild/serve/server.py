"""A tritonserver on this machine: start, readiness, stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from trtbuild.errors import ServeError
from trtbuild.serve import shm
from trtbuild.serve.backends import assemble_backends
from trtbuild.serve.command import server_command, server_environment
from trtbuild.serve.ports import LOOPBACK, ChosenPorts, Ports, choose_ports
from trtbuild.serve.process import start_child
from trtbuild.serve.readiness import is_ready, wait_ready
from trtbuild.serve.state import StateFolder
from trtbuild.serve.wheel import find_wheel

READY_TIMEOUT_S = 600.0
GRACE_S = 10.0
KILL_AFTER_S = 15.0  # beyond the grace time: models unload, stubs end


class Server:
    """A running server. As a context manager it is stopped at the end."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        ports: ChosenPorts,
        shm_prefix: str,
        log: Path,
        grace_s: float,
    ) -> None:
        self._process = process
        self._ports = ports
        self._shm_prefix = shm_prefix
        self._grace_s = grace_s
        self.log_path = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def grpc_address(self) -> str:
        return f"{LOOPBACK}:{self._ports.grpc}"

    @property
    def http_address(self) -> str:
        return f"{LOOPBACK}:{self._ports.http}"

    @property
    def metrics_address(self) -> str:
        return f"{LOOPBACK}:{self._ports.metrics}"

    def is_ready(self) -> bool:
        """Whether the server says that all its models are ready."""
        return is_ready(self._ports.http)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The server's exit code once it has ended by itself; None if the time is over first."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, grace_s: float | None = None) -> None:
        """Ends the server: no new requests, those in flight finish within the grace time or are cancelled."""
        grace_s = self._grace_s if grace_s is None else grace_s
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            if self.wait(grace_s + KILL_AFTER_S) is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        shm.sweep(self._shm_prefix)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(
    repository: Path,
    *,
    ports: Ports = Ports(),
    grace_s: float = GRACE_S,
    ready_timeout_s: float = READY_TIMEOUT_S,
    on_wait: Callable[[float], None] | None = None,
) -> Server:
    """Starts a server of ``repository`` and returns when all its models are ready.

    It listens on the loopback address alone, and ends with this process.

    Raises:
        ServeError: when there is no tritonserver for this environment, a port is taken, or it does not get ready.
    """
    wheel = find_wheel()
    if not repository.is_dir():
        raise ServeError(f"{repository} is not a folder.", "generate a repository first: trtbuild --model …")
    chosen = choose_ports(ports)
    state = StateFolder.of(repository)
    state.path.mkdir(parents=True, exist_ok=True)
    run = state.backends.with_name(f"backends-{os.getpid()}-{time.time_ns()}")
    assemble_backends(wheel, run)
    prefix = shm.new_prefix()
    log = state.log
    log.write_bytes(b"")
    process = start_child(
        server_command(wheel, backends=run, ports=chosen, shm_prefix=prefix, exit_timeout_s=int(grace_s)),
        cwd=repository,
        environment=server_environment(wheel, chosen, os.environ),
        log=log,
    )
    server = Server(process, ports=chosen, shm_prefix=prefix, log=log, grace_s=grace_s)
    try:
        wait_ready(process, http_port=chosen.http, log=log, timeout_s=ready_timeout_s, on_wait=on_wait)
    except BaseException:
        server.stop(grace_s=0)
        raise
    return server
