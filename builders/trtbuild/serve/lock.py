"""One server a repository: a lock that its owner's end gives back."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_LOOKS = 5  # whoever asks whether it is held holds it for a moment
_LOOK_AGAIN_S = 0.02


class Lock:
    """An exclusive lock on a file. Children do not inherit it, so it never outlives its owner."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, note: str = "") -> bool:
        """Takes the lock; False if another process holds it.

        Args:
            note: what its file says to others from then on.
        """
        for _ in range(_LOOKS):
            if self._take_at_once():
                if note:
                    self._path.write_text(note, "utf-8", errors="surrogateescape")
                return True
            time.sleep(_LOOK_AGAIN_S)
        return False

    def _take_at_once(self) -> bool:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Gives the lock back; nothing if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def held_elsewhere(self) -> bool:
        """Whether another process holds it."""
        if self._descriptor is not None:
            return False
        taken = self._take_at_once()
        self.release()
        return not taken
