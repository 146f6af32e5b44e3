"""Git LFS: what lies in a clone in place of a large file that was not fetched."""

from __future__ import annotations

from pathlib import Path

from trtbuild.errors import ModelSourceError

_BEGINS = b"version https://git-lfs.github.com/spec/"


def refuse_pointer(path: Path, data: bytes | None = None) -> None:
    """Raises where a file is the pointer that Git LFS leaves.

    Args:
        data: the file's first bytes, where they were read already.

    Raises:
        ModelSourceError: it is.
    """
    if data is None:
        with path.open("rb") as file:
            data = file.read(len(_BEGINS))
    if data.startswith(_BEGINS):
        raise ModelSourceError(
            f"{path} is a Git LFS pointer: the clone has the file's name and size, and not its content",
            "run in the clone: git lfs install && git lfs pull",
        )
