"""What is said of a repository before its server starts, and does not keep it from starting."""

from __future__ import annotations

from pathlib import Path

from trtbuild.serve import container, contents, room


def cautions(repository: Path) -> list[str]:
    """Each a sentence, and lines with what to do."""
    found = [contents.caution(repository)]
    if not container.serves_on_gpu(repository):  # a container brings its own /dev/shm
        found.append(room.shortage(repository))
    return [caution for caution in found if caution is not None]
