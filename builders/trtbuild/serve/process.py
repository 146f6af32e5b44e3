"""Starting and ending child processes that must not outlive us."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trtbuild.errors import ServeError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _die_with(parent_pid: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def in_child() -> None:
        # TERM: the server then stops by itself and removes its shared memory, which nobody else could.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:
            os._exit(1)

    return in_child


def start_child(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Starts a child in a session of its own, that ends when this process does.

    Its own session: Ctrl-C on a terminal reaches us alone, and we stop the child in order.

    Raises:
        ServeError: from another thread than the main one, whose end the kernel would take for ours.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ServeError(
            "A server can only be started from the main thread: it ends with the thread that starts it."
        )
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with(os.getpid()),
        )
