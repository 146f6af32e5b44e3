"""Keeps a repository served: starts, watches, restarts with a limit, and stops in order on a signal."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from trtbuild.errors import ServeError, TrtbuildError, in_shell
from trtbuild.serve.cautions import cautions
from trtbuild.serve.ports import Ports
from trtbuild.serve.server import GRACE_S, READY_TIMEOUT_S, Claim, Server, claim, launch
from trtbuild.serve.watch import Watch, warm

RESTARTS = 5
RESTART_WINDOW_S = 600.0
LOOK_EVERY_S = 1.0

Kind = Literal["starting", "ready", "failed", "restarting", "stopping", "stopped"]


@dataclass(frozen=True)
class ServeEvent:
    """For whoever shows what happens. ``server`` is there from ``ready`` on."""

    kind: Kind
    message: str
    server: Server | None = None


OnEvent = Callable[[ServeEvent], None]


class _StopAsked(Exception):
    """A signal came while the server was starting."""


class Signals:
    """SIGINT and SIGTERM set an event while this is entered; a second one ends the grace time."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.insisted = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.insisted = self.asked.is_set()
        self.asked.set()

    @contextlib.contextmanager
    def caught(self) -> Iterator[Signals]:
        """Only in the main thread; handlers are put back at the end."""
        before = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve_forever(
    repository: Path,
    *,
    ports: Ports | None = None,
    grace_s: float = GRACE_S,
    ready_timeout_s: float = READY_TIMEOUT_S,
    restarts: int = RESTARTS,
    detached: bool = False,
    on_event: OnEvent = lambda event: None,
    on_wait: Callable[[float], None] = lambda waited_s: None,
) -> None:
    """Serves until SIGINT or SIGTERM, and returns when the server has stopped.

    A server that ends, loses a stub or hangs is started again on the same ports, at most ``restarts`` times
    in ten minutes. One that never got ready is not.

    Raises:
        ServeError: when it does not start, or fails too often.
    """
    keeper = _Keeper(
        repository, ports or Ports(), grace_s=grace_s, ready_timeout_s=ready_timeout_s, restarts=restarts,
        detached=detached, on_event=on_event, on_wait=on_wait,
    )  # fmt: skip
    with Signals().caught() as signals:
        keeper.run(signals)
    on_event(ServeEvent("stopped", "the server has stopped"))


class _Keeper:
    def __init__(
        self,
        repository: Path,
        ports: Ports,
        *,
        grace_s: float,
        ready_timeout_s: float,
        restarts: int,
        detached: bool,
        on_event: OnEvent,
        on_wait: Callable[[float], None],
    ) -> None:
        self._repository = repository
        self._ports = ports
        self._grace_s = grace_s
        self._ready_timeout_s = ready_timeout_s
        self._restarts = restarts
        self._detached = detached
        self._on_event = on_event
        self._on_wait = on_wait
        self._failed_s: list[float] = []
        self._count = 0
        self._fault: str | None = None

    def run(self, signals: Signals) -> None:
        claimed = claim(self._repository)
        try:
            self._keep(claimed, signals)
        except _StopAsked:
            claimed.ended("stopped")
        except (TrtbuildError, OSError) as error:
            claimed.ended("given up", str(error))
            raise
        except BaseException:
            claimed.give_up()
            raise
        else:
            claimed.ended("stopped")

    def _keep(self, claimed: Claim, signals: Signals) -> None:
        """Returns when a signal has come and the server has ended."""
        while True:
            server = self._start(claimed, signals)
            fault = self._watch(server, signals)
            if fault is None:
                message = f"stopping; running requests have {self._grace_s:.0f} s"
                self._on_event(ServeEvent("stopping", message, server))
                self._stop(server, signals)
                return
            self._on_event(ServeEvent("failed", fault, server))
            server.kill(fault)
            self._count_failure(fault)
            self._count, self._fault = self._count + 1, fault
            self._on_event(ServeEvent("restarting", f"starting it again ({self._count}. time)"))

    def _start(self, claimed: Claim, signals: Signals) -> Server:
        def on_wait(waited_s: float) -> None:
            if signals.asked.is_set():
                raise _StopAsked
            self._on_wait(waited_s)

        self._on_event(ServeEvent("starting", f"starting tritonserver for {self._repository}"))
        for caution in cautions(self._repository):
            self._on_event(ServeEvent("starting", caution))
        server = launch(
            claimed,
            ports=self._ports,
            grace_s=self._grace_s,
            detached=self._detached,
            restarts=self._count,
            fault=self._fault,
        )
        try:
            server.wait_ready(self._ready_timeout_s, on_wait)
        except BaseException:
            server.end(grace_s=0)
            raise
        record = server.record
        if record.on_gpu:
            for name, fault in warm(record, self._repository).items():
                self._on_event(ServeEvent("starting", f"{name} does not answer yet: {fault}", server))
        self._ports = Ports(grpc=record.grpc_port, http=record.http_port, metrics=record.metrics_port)
        self._on_event(ServeEvent("ready", f"gRPC on {server.grpc_address}", server))
        return server

    def _watch(self, server: Server, signals: Signals) -> str | None:
        """What is wrong with the server, as soon as something is; None when it shall stop."""
        watch = Watch(server.record, self._repository, server.stubs)
        while not signals.asked.wait(LOOK_EVERY_S):
            if server.exit_code is not None:
                return f"tritonserver ended with code {server.exit_code}"
            fault = watch.fault()
            if fault is not None:
                return fault
        return None

    def _stop(self, server: Server, signals: Signals) -> None:
        """A second signal ends the grace time."""
        deadline_s = time.monotonic() + self._grace_s
        server.ask_to_stop()
        while server.exit_code is None and time.monotonic() < deadline_s and not signals.insisted:
            server.wait(0.2)
        server.end(grace_s=0)

    def _count_failure(self, fault: str) -> None:
        now_s = time.monotonic()
        self._failed_s = [at_s for at_s in self._failed_s if now_s - at_s < RESTART_WINDOW_S] + [now_s]
        if len(self._failed_s) > self._restarts:
            minutes = RESTART_WINDOW_S / 60
            raise ServeError(
                f"The server failed {len(self._failed_s)} times in {minutes:.0f} minutes, at last: {fault}.",
                f"see its log: trtbuild logs {in_shell(self._repository)}",
            )
