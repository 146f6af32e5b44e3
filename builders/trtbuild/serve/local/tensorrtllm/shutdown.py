"""Whether the server is going down and its grace time is over.

Triton has no call to end what is in flight: on SIGTERM it waits. So the process that runs the server says it
by a file. A server whose owner is gone gets SIGTERM from the kernel, and does not wait at all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

DRAIN_FILE = "TRTBUILD_DRAIN_FILE"
OWNER_PID = "TRTBUILD_OWNER_PID"
_LOOK_EVERY_S = 0.2


class Shutdown:
    """Reads both names from the environment; without them (another launcher) it never begins."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._drain_file = environment.get(DRAIN_FILE)
        self._owner_pid = environment.get(OWNER_PID)
        self._begun = False
        self._looked_s = 0.0

    def begun(self) -> bool:
        """Looks at most five times a second."""
        now_s = time.monotonic()
        if not self._begun and now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = now_s
            told = self._drain_file is not None and Path(self._drain_file).exists()
            orphaned = self._owner_pid is not None and not _runs(self._owner_pid)
            self._begun = told or orphaned
        return self._begun


def _runs(pid: str) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        state = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]  # proc(5)
    except OSError:
        return False
    return state not in ("Z", "X")
