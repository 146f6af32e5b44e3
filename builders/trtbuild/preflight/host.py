"""The machine that builds: memory, disk, driver. Nothing is imported or started but nvidia-smi."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from trtbuild.targets import NVIDIA_SMI_TIMEOUT_S


@dataclass(frozen=True)
class BuildHost:
    """What a build can use; None where it is not known.

    Attributes:
        ram_bytes: memory that this process may use.
        disk_free_bytes: free on the file system of the build folder.
        driver: NVIDIA driver version.
        build_dir: where it is built.
    """

    ram_bytes: int | None = None
    disk_free_bytes: int | None = None
    driver: str | None = None
    build_dir: Path | None = None

    def held_bytes(self, model: str) -> int:
        """What an earlier build of a model has on the disk already."""
        if self.build_dir is None:
            return 0
        files = (path for path in (self.build_dir / model).rglob("*") if not path.is_symlink())
        return sum(path.stat().st_size for path in files if path.is_file())


def read_build_host(build_dir: Path, *, ram_bytes: int | None) -> BuildHost:
    """Reads this machine; ``build_dir`` need not exist yet."""
    folder = build_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    return BuildHost(ram_bytes, shutil.disk_usage(folder).free, _driver(), build_dir)


def _driver() -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.splitlines()[0].strip() if answer.stdout.strip() else None
