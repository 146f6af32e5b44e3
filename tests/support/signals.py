"""Signals of child processes."""

from __future__ import annotations

import signal


def heed_ctrl_c() -> None:
    """A ``preexec_fn``: Ctrl-C ends the child also where tests run in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
