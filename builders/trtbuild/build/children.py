"""Runs a step's child process: output line by line into its log, the exit code read, nothing left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trtbuild.build.diagnose import explain
from trtbuild.errors import BuildError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_TAIL_LINES = 15


def run_child(
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    log: Path,
    what: str,
    on_line: Callable[[str], None] | None = None,
    held_fd: int | None = None,
) -> None:
    """Runs a command to its end.

    The child is killed when this process ends in whatever way.

    Args:
        log: gets the output, from the beginning.
        what: the step, for messages.
        on_line: called with every line of output.
        held_fd: a file descriptor that the child inherits: a lock on it lasts until the child has ended.

    Raises:
        BuildError: the command cannot be started, ends with another code than 0, or its log cannot be
        written.
    """
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    try:
        with (
            log.open("w", encoding="utf-8", errors="replace") as file,
            _start(argv, cwd, environment, held_fd) as child,
        ):
            try:
                assert child.stdout is not None
                for raw in child.stdout:
                    line = raw.decode("utf-8", errors="replace")
                    file.write(line)
                    file.flush()
                    tail.append(line.rstrip())
                    if on_line is not None:
                        on_line(line.rstrip())
                code = child.wait()
            except BaseException:
                _kill(child)
                raise
    except FileNotFoundError as error:
        raise BuildError(f"{what}: {argv[0]} cannot be started: no such program", "check PATH") from error
    except PermissionError as error:
        raise BuildError(f"{what}: {argv[0]} cannot be started: {error.strerror}") from error
    except OSError as error:
        raise BuildError(f"{what}: {error.strerror} ({error.filename or log})", "free disk space") from error
    if code != 0:
        message, remedies = explain(code, list(tail))
        last = "\n".join(f"    {line}" for line in tail)
        raise BuildError(f"{what} failed: {message}; the end of {log}:\n{last}", *remedies)


def _start(
    argv: Sequence[str], cwd: Path, environment: Mapping[str, str], held_fd: int | None
) -> subprocess.Popen[bytes]:
    parent = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent,
        pass_fds=() if held_fd is None else (held_fd,),
    )


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
