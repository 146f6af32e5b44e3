"""Shared memory of the server's Python stubs: regions are files of /dev/shm that begin with our prefix."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from trtbuild.errors import ServeError

SHM = Path("/dev/shm")
PREFIX = "trtbuild-"
REGION_BYTES = 2**20


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


def check_room(repository: Path) -> None:
    """Raises ServeError when /dev/shm cannot hold the stubs' regions of a repository's models.

    Each Python instance takes a region when it starts (shm-default-byte-size of the Python backend, 1 MiB)
    and grows it by as much when its tensors need more; one such step is asked for.
    """
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    instances = 0
    for path in repository.glob("*/config.pbtxt"):
        config = model_config_pb2.ModelConfig()
        try:
            text_format.Parse(path.read_text("utf-8"), config)
        except (text_format.ParseError, UnicodeDecodeError):
            continue  # the server says what is wrong with it
        if not config.HasField("ensemble_scheduling"):
            instances += sum(group.count or 1 for group in config.instance_group) or 1
    needed, free = 2 * instances * REGION_BYTES, shutil.disk_usage(SHM).free
    if free < needed:
        raise ServeError(
            f"{SHM} has {free / 2**20:.1f} MiB free, and the {instances} Python processes of {repository} "
            f"need {needed / 2**20:.0f} MiB of shared memory.",
            f"remove what is left over there (ls -l {SHM})",
            "in a container, start it with a larger --shm-size",
        )
