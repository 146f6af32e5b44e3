"""The launch lines leave BLS calls 32 threads.

Every BLS call of a Python model holds a thread of its instance's pool until its first response, and every
sent response takes one, too: 64 clients brought running streams to a stop of 2.4 s; with 256 threads it
was 24 ms.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_bls

SEVERITY = "warning"


def check(repository: LintRepository) -> Iterator[Found]:
    """Launch files of repositories with BLS models."""
    if not any(is_bls(model) and model.decoupled for model in repository.readable):
        return
    for file in repository.text_files:
        start = file.text.find("tritonserver --")
        if "/" not in file.file and start >= 0 and "thread-pool-size" not in file.text:
            yield Found(
                file.place(start),
                "tritonserver is started without thread-pool-size, before a BLS model",
                "its calls and responses share 32 threads, and streams stall when more clients come",
                "add --backend-config=python,thread-pool-size=256",
            )
