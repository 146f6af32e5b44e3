"""Changes to a repository that happen as a whole, whenever the process is killed.

All new files are first made in a staging folder beside the repository, on the same file system. A journal is
then moved into place there: before that moment nothing has happened to the repository, after it everything
will. Applying it is a sequence of renames that can be repeated, so whoever comes next finishes an interrupted
one (``recover``), and drops a staging folder without a journal.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from trtbuild.errors import RepositoryError
from trtbuild.repository import steps

_JOURNAL = "journal.json"


@dataclass(frozen=True)
class Change:
    """What a transaction puts in place and takes out; files go in the order given, after all folders."""

    folders: tuple[str, ...] = ()
    removed_folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    removed_files: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.folders or self.removed_folders or self.files or self.removed_files)


def staging_of(repo: Path) -> Path:
    """The staging folder of a repository: beside it, because every folder inside is a model for Triton."""
    repo = repo.resolve()
    return repo.parent / f".{repo.name}.trtbuild"


@contextlib.contextmanager
def exclusive(repo: Path) -> Iterator[Path]:
    """Holds the repository for one writer, after finishing what a killed one left; gives the staging folder.

    Raises:
        RepositoryError: if another process is writing to the repository.
    """
    staging = staging_of(repo)
    with _locked(staging):
        try:
            recover(repo)
            yield staging
        except Exception:
            if not (staging / _JOURNAL).is_file():
                with contextlib.suppress(OSError):
                    steps.remove_tree(staging)
            raise
        steps.remove_tree(staging)


@contextlib.contextmanager
def _locked(staging: Path) -> Iterator[None]:
    while True:
        steps.make_folder(staging)
        descriptor = os.open(staging, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise RepositoryError(
                f"another trtbuild is writing to the repository beside {staging}",
                "wait until it has ended",
            ) from None
        # Its last holder may have removed the folder between the open and the lock.
        if staging.exists() and os.fstat(descriptor).st_ino == staging.stat().st_ino:
            break
        os.close(descriptor)
    try:
        yield
    finally:
        os.close(descriptor)


def recover(repo: Path) -> None:
    """Finishes or drops what a killed writer left in the staging folder. The caller holds the lock."""
    staging = staging_of(repo)
    journal = staging / _JOURNAL
    if journal.is_file():
        _apply(
            repo,
            staging,
            Change(**{key: tuple(value) for key, value in json.loads(journal.read_bytes()).items()}),
        )
    for left in sorted(staging.iterdir()) if staging.is_dir() else ():
        steps.remove_tree(left) if left.is_dir() and not left.is_symlink() else steps.remove_file(left)


def is_interrupted(repo: Path) -> bool:
    """Whether a killed writer left a change that is decided on but not finished."""
    return (staging_of(repo) / _JOURNAL).is_file()


def finish_interrupted(repo: Path) -> bool:
    """Finishes a change of which a killed writer left the rest; returns whether there was one.

    Raises:
        RepositoryError: if another process is writing to the repository.
    """
    if not is_interrupted(repo):
        return False
    with exclusive(repo):
        return True


def commit(repo: Path, staging: Path, change: Change) -> None:
    """Does what was staged under ``staging/new`` (folders) and ``staging/files``."""
    draft = staging / f"{_JOURNAL}.tmp"
    steps.write_file(draft, json.dumps(asdict(change)).encode())
    steps.move(draft, staging / _JOURNAL)
    _apply(repo, staging, change)


def _apply(repo: Path, staging: Path, change: Change) -> None:
    steps.make_folder(repo)
    old = staging / "old"
    steps.make_folder(old)
    for name in change.folders:
        fresh = staging / "new" / name
        if fresh.is_dir():
            if (repo / name).exists():
                steps.move(repo / name, old / name)
            steps.move(fresh, repo / name)
    for name in change.removed_folders:
        if (repo / name).exists():
            steps.move(repo / name, old / name)
    for name in change.files:
        fresh = staging / "files" / name
        if fresh.is_file():
            steps.move(fresh, repo / name)
    for name in change.removed_files:
        steps.remove_file(repo / name)
    steps.remove_file(staging / _JOURNAL)
