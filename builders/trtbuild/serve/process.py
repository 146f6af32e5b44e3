"""Processes of a server: started so that they end with us, recognised, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trtbuild.errors import ServeError

if TYPE_CHECKING:
    import psutil

STUB = "triton_python_backend_stub"
SERVER_ID = "TRTBUILD_SERVER_ID"  # in the environment of every process of a server

# Run by a Python without site packages: asks the kernel for SIGTERM at our end, and becomes the server. TERM,
# because a server that stops by itself removes its shared memory, which nobody else could then.
# 1 is PR_SET_PDEATHSIG (linux/prctl.h); it holds across exec.
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that starts the server is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


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
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command],
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def started_s(pid: int) -> float:
    """A process's start time, seconds since the epoch; 0 if there is no such process."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return float(psutil.Process(pid).create_time())
    return 0.0


def is_alive(pid: int, start_s: float) -> bool:
    """Whether the process with this pid and start time runs."""
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        same = abs(process.create_time() - start_s) < 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    return False


def of_server(server_id: str) -> list[psutil.Process]:
    """Every process that carries the server's mark: the server, its stubs, the engines. Not this one."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(SERVER_ID) == server_id:
                found.append(process)
    return found


def stubs_of(server_pid: int) -> dict[int, float]:
    """Stub processes of a server: pid and start time."""
    import psutil

    stubs = {}
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(server_pid).children():
            with contextlib.suppress(psutil.Error):
                if Path(child.cmdline()[0]).name == STUB:
                    stubs[child.pid] = started_s(child.pid)
    return stubs


def end_all(server_id: str, *, wait_s: float = 5.0) -> int:
    """Ends what a dead server left: SIGTERM, then SIGKILL. Returns how many processes there were."""
    import psutil

    left = of_server(server_id)
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal_number)
        _, alive = psutil.wait_procs(left, timeout=wait_s)
        if not alive:
            break
    return len(left)
