"""The stub's end: starts the worker, sends it jobs, and hands on what comes back."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from .jobs import Cancel, Event, Failed, Gauges, Job
from .limits import LoadRefused
from .settings import Settings

# When the engine is ahead of the responses, what is there already goes together; never so much that a client
# would wait for it.
MERGED_STEPS = 8


def interpreter() -> str:
    """The Python that runs the worker: inside the stub ``sys.executable`` is not one."""
    named = os.environ.get("TRTBUILD_PYTHON")
    if named:
        return named
    return str(Path(sys.prefix) / "bin" / "python3")


class Link:
    """A running worker.

    Args:
        settings: for its engine.
        on_progress: called in the link's own thread with events (several steps' worth when they are already
            there, in order) and the newest gauges.
        on_end: called once in that thread when the worker has ended without being asked to; gets the reason.

    Raises:
        LoadRefused: when the engine does not load.
    """

    def __init__(
        self,
        settings: Settings,
        on_progress: Callable[[list[Event], Gauges | None], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._on_progress = on_progress
        self._on_end = on_end
        self._closing = False
        self._send_lock = threading.Lock()
        ours, theirs = socket.socketpair()
        entry = Path(__file__).with_name("model.py")
        with theirs:
            self._process = subprocess.Popen(
                [interpreter(), str(entry), str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self.ended = ""  # why the worker is gone, once it is
        self._load(settings)
        self._thread = threading.Thread(target=self._listen, name="engine-link", daemon=True)
        self._thread.start()

    def _load(self, settings: Settings) -> None:
        try:
            self._connection.send(settings)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            code = self._process.wait()
            raise LoadRefused(f"the engine's process ended with code {code} while it loaded") from error
        if isinstance(answer, Failed):
            raise LoadRefused(f"the engine does not load: {answer.message}")

    def send(self, message: Job | Cancel) -> None:
        """Raises OSError when the worker is gone."""
        with self._send_lock:
            self._connection.send(message)

    def _listen(self) -> None:
        try:
            reason = self._relay()
        except (EOFError, OSError):
            reason = ""
        if not self._closing:
            code = self._process.wait()
            self.ended = reason or f"the engine's process ended with code {code}"
            self._on_end(self.ended)

    def _relay(self) -> str:
        """Hands on progress until the worker says why it fails."""
        while True:
            events: list[Event] = []
            gauges: Gauges | None = None
            for _ in range(MERGED_STEPS):
                message = self._connection.recv()
                if isinstance(message, Failed):
                    return message.message
                events += message.events
                gauges = message.gauges or gauges
                if not self._connection.poll(0):
                    break
            self._on_progress(events, gauges)

    def close(self) -> None:
        """Ends the worker and waits for it."""
        self._closing = True
        try:
            with self._send_lock:
                self._connection.send(None)
            self._process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._thread.join(timeout=10)
        self._connection.close()
