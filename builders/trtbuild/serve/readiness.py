"""Waits until the server's own API says that all models are ready."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from trtbuild.errors import ServeError
from trtbuild.serve import logs
from trtbuild.serve.ports import LOOPBACK

POLL_S = 0.1
ANSWER_S = 2.0


def is_ready(http_port: int) -> bool:
    """``/v2/health/ready``: every model of the repository is loaded (strict readiness)."""
    return _says_yes(http_port, "/v2/health/ready")


def is_model_ready(http_port: int, model: str) -> bool:
    """``/v2/models/<model>/ready``."""
    return _says_yes(http_port, f"/v2/models/{quote(model)}/ready")


def is_unknown(http_port: int, model: str) -> bool:
    """Whether the server says that it has never heard of a model, as of one that came after its start.

    Of one that failed to load it says something else. Its repository's index, which would tell of all at
    once, is closed to clients.
    """
    try:
        with urllib.request.urlopen(
            f"http://{LOOPBACK}:{http_port}/v2/models/{quote(model)}", timeout=ANSWER_S
        ):
            return False
    except urllib.error.HTTPError as error:
        return "is not found" in error.read().decode("utf-8", "replace")
    except OSError:
        return False


def _says_yes(http_port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{http_port}{path}", timeout=ANSWER_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def wait_ready(
    process: subprocess.Popen[bytes],
    *,
    http_port: int,
    log: Path,
    timeout_s: float,
    on_wait: Callable[[float], None] | None = None,
) -> None:
    """Returns when the server is ready.

    Args:
        on_wait: called about every tenth of a second with the seconds waited, for a progress display.

    Raises:
        ServeError: when the process ends or the time is over, with what the log says about it.
    """
    begun = time.monotonic()
    while not is_ready(http_port):
        if process.poll() is not None:
            raise start_error(log, f"tritonserver ended with code {process.returncode} before it was ready.")
        waited_s = time.monotonic() - begun
        if waited_s > timeout_s:
            raise start_error(log, f"tritonserver was not ready after {timeout_s:.0f} s.")
        if on_wait is not None:
            on_wait(waited_s)
        time.sleep(POLL_S)


def start_error(log: Path, what: str) -> ServeError:
    """The failing models' own messages if there are any, else the log's last lines."""
    failures = logs.failed_models(log)
    if failures:
        lines = [f"model {model}: {why}" for model, why in failures.items()]
        return ServeError("\n".join([what, *lines]), f"the whole log is {log}")
    reasons = logs.errors(log) or logs.tail(log)
    return ServeError("\n".join([what, *reasons]), f"the whole log is {log}")
