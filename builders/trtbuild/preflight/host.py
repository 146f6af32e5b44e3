"""The machine that builds: memory, disk, driver. Nothing is imported or started but nvidia-smi."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NVIDIA_SMI_TIMEOUT_S = 10


@dataclass(frozen=True)
class BuildHost:
    """What a build can use; None where it could not be read.

    Attributes:
        ram_bytes: physical memory, or the limit of the control group if that is lower.
        disk_free_bytes: free on the file system of the build folder.
        driver: NVIDIA driver version.
    """

    ram_bytes: int | None = None
    disk_free_bytes: int | None = None
    driver: str | None = None


def read_build_host(build_dir: Path) -> BuildHost:
    """Reads this machine; ``build_dir`` need not exist yet."""
    return BuildHost(
        ram_bytes=_ram_bytes(Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")),
        disk_free_bytes=shutil.disk_usage(_existing(build_dir)).free,
        driver=_driver(),
    )


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _ram_bytes(meminfo: Path, cgroup_limit: Path) -> int | None:
    total = None
    if meminfo.is_file():
        rows = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        total = int(rows["MemTotal"].split()[0]) * 1024  # the file is in KiB
    if cgroup_limit.is_file() and (limit := cgroup_limit.read_text().strip()).isdigit():
        total = int(limit) if total is None else min(total, int(limit))
    return total


def _driver() -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.splitlines()[0].strip() if answer.stdout.strip() else None
