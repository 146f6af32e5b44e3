"""Shared memory of the server's Python stubs: regions are files of /dev/shm that begin with our prefix."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

SHM = Path("/dev/shm")
PREFIX = "trtbuild-"
REGION_BYTES = 2**20
_BLOCK_BYTES = 512  # unit of st_blocks


def new_server_id() -> str:
    """Names one run of a server, and begins its regions' names; the pid is for whoever reads them."""
    return f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}-"


def regions(prefix: str) -> list[Path]:
    """Regions that exist."""
    if not prefix.startswith(PREFIX):
        raise ValueError(f"{prefix!r} is not a prefix of ours")
    return sorted(SHM.glob(f"{prefix}*"))


def sweep(prefix: str) -> list[str]:
    """Removes the regions of a server that is gone; returns their names."""
    found = regions(prefix)
    for region in found:
        region.unlink(missing_ok=True)
    return [region.name for region in found]


def allocated_bytes(prefix: str) -> int:
    """What the regions of a server take now."""
    return sum(file.stat().st_blocks * _BLOCK_BYTES for file in regions(prefix))
