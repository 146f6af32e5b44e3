"""The container has published vulnerabilities.

Server releases before a fix: code by the shared-memory API, overflows by chunked HTTP bodies, both without
authentication. A network must not reach such a server.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "warning"


def check(repository: LintRepository) -> Iterator[Found]:
    """The container that is said or stamped."""
    known = repository.stated if repository.stated is not None else repository.stamp
    container = known.container if known is not None else None
    if known is None or container is None:
        return
    for advisory in container.advisories:
        yield Found(
            known.place,
            f"container {container.release} is older than {advisory.below}: {', '.join(advisory.ids)}",
            advisory.what,
            f"use {advisory.below} or newer, or keep the server on 127.0.0.1",
        )
