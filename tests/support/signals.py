"""Signals of child processes."""

from __future__ import annotations

from collections.abc import Sequence


def heeding_ctrl_c(argv: Sequence[str]) -> list[str]:
    """The command, which Ctrl-C ends also where tests run in the background, which ignores it.

    Not a ``preexec_fn``: that forks, and gRPC's handlers start threads in the child, whose descriptors are
    then closed under them: now and then it aborted before the command began.
    """
    return ["env", "--default-signal=INT", *argv]
