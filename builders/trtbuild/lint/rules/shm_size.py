"""/dev/shm of the container is too small for the Python models.

Each Python instance takes 1 MiB of /dev/shm when it starts (64 MiB in releases before 24) and more for its
tensors; docker gives a container 64 MiB. The message is "Unable to initialize shared memory key"
(server issues 6195, 5869).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_SIZE = re.compile(
    r"(?:--shm-size[= ]|shm_size:[ \t]*)[\"']?(\d+(?:\.\d+)?)[ \t]*([kmg]?)i?b?\b", re.IGNORECASE
)
_UNIT = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_START_BYTES, _DOCKER_BYTES = 1 << 20, 64 << 20


def check(repository: LintRepository) -> Iterator[Found]:
    """Launch and compose files of the root."""
    count = sum(model.instances for model in repository.readable if model.backend == "python")
    need = count * _START_BYTES
    for file in repository.text_files:
        if "/" in file.file or not count:
            continue
        sizes = list(_SIZE.finditer(file.text))
        for match in sizes:
            size = float(match[1]) * _UNIT[match[2].lower()]
            if size < need:
                yield Found(
                    file.place(match.start()),
                    f"/dev/shm of {size / (1 << 20):g} MiB for {count} Python instances",
                    f"they take {need >> 20} MiB before the first request, and do not start",
                    f"give at least {(need >> 20) + 256} MiB",
                )
        start = file.text.find("docker run")
        if start >= 0 and not sizes and "--ipc" not in file.text and need > _DOCKER_BYTES:
            yield Found(
                file.place(start),
                f"docker run without --shm-size, for {count} Python instances",
                f"they take {need >> 20} MiB of /dev/shm, and docker gives {_DOCKER_BYTES >> 20} MiB",
                f"add --shm-size {(need >> 20) + 256}m",
            )
