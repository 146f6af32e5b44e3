"""Single steps on the file system. Every change that a writer makes goes through one of these."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

# A file system without hard links (or a link across two of them) answers with one of these.
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}


def make_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


def write_file(path: Path, data: bytes, *, executable: bool = False) -> None:
    path.write_bytes(data)
    path.chmod(0o755 if executable else 0o644)


def link_file(source: Path, path: Path) -> None:
    """A hard link, or a copy with the same times where none can be made. A symbolic link stays one."""
    if source.is_symlink() and not path.exists():
        path.symlink_to(source.readlink())
        return
    try:
        os.link(source, path)
    except OSError as exc:
        if exc.errno not in _NO_LINK:
            raise
        shutil.copy2(source, path)


def move(source: Path, target: Path) -> None:
    """Atomic: both are on one file system."""
    source.replace(target)


def remove_file(path: Path) -> None:
    path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
