"""What a fake model can be told to do wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from .. import _checks
from .._proto import grpc
from ..errors import UsageError

Kind = Literal[
    "drop", "die", "stall", "error", "no_final", "linger", "open_end", "lose", "duplicate", "reorder",
    "foreign_id", "late", "wrong_dtype", "cut",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, at the response with this number (0: before the first).

    Kinds:
        drop: the call ends with UNAVAILABLE; the server itself is well.
        die: the server dies; see ``FakeTriton.kill``.
        stall: nothing more is sent, until the client leaves.
        error: the call fails with ``message``: as a text in the stream (Triton's way), or with a gRPC status
            where ``code`` is set or the client asked for one (``triton_grpc_error``).
        no_final: the stream ends without a final flag.
        linger: as no_final, and the stream stays open.
        open_end: there is a final flag, and the stream stays open.
        lose: this response is not sent.
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

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise UsageError(f"a fault of kind {self.kind!r} is none; there are {', '.join(_KINDS)}")
        _number("Fault.at", self.at)
        if self.times is not None:
            _times("Fault.times", self.times)
        _checks.text("Fault.message", self.message)
        if self.code is not None and self.code not in grpc.StatusCode.__members__:
            known = ", ".join(grpc.StatusCode.__members__)
            raise UsageError(f"Fault.code is {self.code!r}; gRPC has {known}")


_KINDS: Final = get_args(Kind)
_number: Final = _checks.whole(0, _checks.INT32_MAX, "of a response, from 0")
_times: Final = _checks.whole(1, _checks.INT32_MAX, "of requests, from 1; None for all")


def in_order(fault: Fault | None, responses: Iterator[Any]) -> Iterator[Any]:
    """The responses in the order, and with the flags, in which a fault lets them out."""
    for number, response in enumerate(responses):
        if fault is not None and fault.kind in ("no_final", "linger"):
            response.parameters.pop("triton_final_response", None)
        if fault is not None and fault.kind == "reorder" and fault.at == number:
            following = next(responses, None)
            if following is not None:
                yield following
        yield response


def spoiled(fault: Fault | None, number: int, response: Any) -> list[Any]:
    """What is sent in place of the response with this number."""
    if fault is None or fault.at != number:
        return [response]
    if fault.kind == "lose":
        return []
    if fault.kind == "duplicate":
        return [response, response]
    if fault.kind == "foreign_id":
        response.id = "somebody-else"
    if fault.kind == "wrong_dtype" and response.outputs:
        response.outputs[0].datatype = "FP32"
    if fault.kind == "cut" and response.outputs:
        response.raw_output_contents[0] = response.raw_output_contents[0][:-1]
    return [response]
