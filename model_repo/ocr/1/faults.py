"""What a client is told of a fault inside the server: what happened and who can act. The detail, which names
files, processes and code, is for the server's log.

Written beside the code of every model, which imports it as ``.faults``.
"""

from __future__ import annotations

from typing import Any

# Triton's Python backend has no code for it, only this text.
_NO_SHARED_MEMORY = "shared memory pool"
_FULL = (
    "the server has no shared memory left (/dev/shm is full): whoever runs it can remove what is left over "
    "there, or give it more (docker's --shm-size); a smaller request may pass"
)
_IN_LOG = "the server's log says why"
# How Triton's Python backend tells that a model's code, or its process, failed (pb_stub.cc, python_be.cc).
_OF_THE_INSIDE = (
    _NO_SHARED_MEMORY,
    "Traceback (most recent call last)",
    "Failed to process the request(s) for model",
    "Stub process",
)


def told(what: str, detail: object, pb_utils: Any) -> str:
    """Logs a fault, and returns what a client may know of it.

    Args:
        what: what failed, such as "reading the picture failed".
        detail: an exception, or another model's message.
    """
    text = detail if isinstance(detail, str) else repr(detail)
    pb_utils.Logger.log_error(f"{what}: {text}")
    return f"{what}: {_FULL if _NO_SHARED_MEMORY in text else _IN_LOG}"


def is_of_the_inside(message: str) -> bool:
    """Whether another model's message speaks of its code or its process, and not of the request."""
    return any(mark in message for mark in _OF_THE_INSIDE)
