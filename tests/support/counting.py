"""What a process holds: threads, file descriptors, segments of shared memory."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path


def counted() -> tuple[int, int, int]:
    """Threads, file descriptors and segments of shared memory of this process."""
    gc.collect()
    segments = list(Path("/dev/shm").glob(f"tritonstream-{os.getpid()}-*"))
    threads = [thread for thread in threading.enumerate() if not thread.name.startswith("fake-triton")]
    return len(threads), len(list(Path("/proc/self/fd").iterdir())), len(segments)


def settles(expected: tuple[int, int, int], seconds: float = 5.0) -> bool:
    """Whether the counts get down to what is expected; gRPC frees sockets a little later."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if all(now <= before for now, before in zip(counted(), expected, strict=True)):
            return True
        time.sleep(0.05)
    return False
