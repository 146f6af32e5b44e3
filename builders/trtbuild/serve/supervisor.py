"""The process of a detached server: ``python -m trtbuild.serve.supervisor REPOSITORY``.

It forks, prints the pid of the supervisor proper and ends, so that this one is nobody's child. The supervisor
writes to ``supervisor.log``; the words after ``FAILED_MARK`` are read by ``registry``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path

from trtbuild.errors import TrtbuildError
from trtbuild.serve.ports import Ports
from trtbuild.serve.registry import FAILED_MARK
from trtbuild.serve.state import StateFolder
from trtbuild.serve.supervise import ServeEvent, serve_forever


def main(arguments: list[str]) -> int:
    """Exit code of the supervisor: 0 when it was told to stop, 1 when the server cannot be kept running."""
    parser = argparse.ArgumentParser(prog="python -m trtbuild.serve.supervisor")
    parser.add_argument("repository", type=Path)
    parser.add_argument("--grace", type=float, default=10.0, help="seconds for running requests at the end")
    for name in ("grpc", "http", "metrics"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args(arguments)
    child = os.fork()
    if child:
        print(child, flush=True)
        os._exit(0)
    with StateFolder.of(options.repository).supervisor_log.open("wb") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    return supervise(options)


def supervise(options: argparse.Namespace) -> int:
    """Serves until it is told to stop."""
    try:
        serve_forever(
            options.repository,
            ports=Ports(grpc=options.grpc, http=options.http, metrics=options.metrics),
            grace_s=options.grace,
            detached=True,
            on_event=_write,
        )
    except TrtbuildError as error:
        _say(FAILED_MARK, error.message, *error.remedies)
        return 1
    except OSError as error:
        _say(FAILED_MARK, f"{error.filename or options.repository}: {error.strerror}")
        return 1
    return 0


def _write(event: ServeEvent) -> None:
    _say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {event.kind} {event.message}")


def _say(*lines: str) -> None:
    with contextlib.suppress(OSError):  # a server does not end because its log's disk is full
        print(*lines, sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
