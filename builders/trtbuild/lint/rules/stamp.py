"""The repository was written for another container than the one that is said.

trtbuild.json names the container that the configs were written for: names and parameters follow its version.
One that cannot be read is told, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.versions import MANIFEST

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """The stamp against the command line."""
    stated, stamp = repository.stated, repository.stamp
    if repository.is_ours and stamp is None:
        yield Found(
            Place(MANIFEST),
            f"{MANIFEST} cannot be read, or names a version that is not known here",
            "nothing can be checked against the version that the repository was written for",
            "restore it, or write the repository again",
            severity="warning",
        )
    if stated is not None and stamp is not None and not set(stated.interfaces) & set(stamp.interfaces):
        yield Found(
            stamp.place,
            f"written for TensorRT-LLM {stamp.trtllm}; {stated.source} means {stated.trtllm}",
            "tensors and parameters have other names in other versions, and engines do not load",
            "serve it with the container that it was written for, or write it again with --container",
        )
