"""Shared memory of the server's Python stubs: regions are files of /dev/shm that begin with our prefix."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

SHM = Path("/dev/shm")
PREFIX = "trtbuild-"


def new_prefix() -> str:
    """A prefix for one server's regions; ``PREFIX`` marks it as ours, the pid helps a reader."""
    return f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}-"


def regions(prefix: str) -> list[Path]:
    """Regions that exist."""
    if not prefix.startswith(PREFIX):
        raise ValueError(f"{prefix!r} is not a prefix of ours")
    return sorted(SHM.glob(f"{prefix}*"))


def sweep(prefix: str) -> list[str]:
    """Removes the regions of a server that is gone; returns their names."""
    removed = []
    for region in regions(prefix):
        region.unlink(missing_ok=True)
        removed.append(region.name)
    return removed
