"""What a fake model can be told to do wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "drop",
    "stall",
    "error",
    "no_final",
    "duplicate",
    "reorder",
    "foreign_id",
    "late",
    "wrong_dtype",
    "cut",
    "linger",
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, at the response with this number (0: before the first).

    Kinds:
        drop: the call ends with UNAVAILABLE, as when the connection breaks.
        stall: nothing more is sent, until the client leaves.
        error: the call fails with ``message``: as a text in the stream (Triton's way), or with a gRPC status
            where ``code`` is set or the client asked for one (``triton_grpc_error``).
        no_final: the stream ends without a final flag.
        linger: as no_final, and the stream stays open.
        duplicate: this response is sent twice.
        reorder: this response and the next one change places.
        foreign_id: this response carries another request's id.
        late: a response follows the final one.
        wrong_dtype: this response's first tensor claims to be FP32.
        cut: this response's first tensor lacks its last byte.

    ``times`` is how many requests it hits; None for all.
    """

    kind: Kind
    at: int = 0
    message: str = "the fake model failed as told"
    code: str | None = None
    times: int | None = None
