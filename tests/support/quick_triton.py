"""A fake Triton in a process of its own, for tests that count, time or fork."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_triton(*options: str) -> Iterator[str]:
    """Runs ``python -m tritonstream.testing``; gives its address."""
    command = [sys.executable, "-m", "tritonstream.testing", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
