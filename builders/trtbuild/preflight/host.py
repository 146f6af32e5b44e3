"""The machine that builds: memory, disk, driver. Nothing is imported or started but nvidia-smi."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from trtbuild.targets import ask_nvidia_smi


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
    rows = ask_nvidia_smi("--query-gpu=driver_version")
    return next((row[0].strip() for row in rows if row and row[0].strip()), None)
