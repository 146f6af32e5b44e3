"""`max_inflight_requests` in a container that does not know it.

The back-pressure of ensembles came with 25.11; an older server's parser refuses the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Ensembles, where the container is known."""
    known = repository.known
    if known is None or known.container is None or "max_inflight_requests" in known.container.features:
        return
    for model in repository.readable:
        for path, item in model.config.walk() if model.config and model.is_ensemble else ():
            if path.endswith("max_inflight_requests"):
                yield Found(
                    model.at(item),
                    f"max_inflight_requests with container {known.container.release}",
                    "its server does not know the key, and its parser refuses the file",
                    "use 25.11 or newer, or remove it",
                )
