"""gRPC status → exception: the one place where lower errors are translated.

No text but the front's own is interpreted, for wordings change from release to release. What a status leaves
open is settled by asking the server (``settle``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from . import errors
from .models import ModelKind

_LIMIT_BYTES: Final = 4 * 1024 * 1024  # gRPC's default for received messages (server issue #1776)

# Release 26.04. With the header triton_grpc_error, errors inside a stream get a status code since 24.09;
# until 26.03 such an error can end the server (use after free, server pull request 8708): not sent there.
_CODED_SINCE: Final = (2, 68)
# trtbuild's front and engine end errors with a TritonError code for clients that get no status.
_FRONT_CODE: Final = re.compile(r" \[([A-Z_]+)\]$")
_GRPC_CODE: Final = {"INVALID_ARG": "INVALID_ARGUMENT"}

_LOST: Final = "the connection was lost: "

_SERVER: Final[dict[str, type[errors.ServerError]]] = {
    "NOT_FOUND": errors.ModelNotFound,
    "INVALID_ARGUMENT": errors.InvalidRequest,
    "OUT_OF_RANGE": errors.InvalidRequest,
    "FAILED_PRECONDITION": errors.InvalidRequest,
    "UNIMPLEMENTED": errors.InvalidRequest,  # a decoupled model called unary, among others
    "RESOURCE_EXHAUSTED": errors.Overloaded,
    "UNAUTHENTICATED": errors.AccessDenied,
    "PERMISSION_DENIED": errors.AccessDenied,
}


def from_status(code: str, details: str, *, connected: bool, sent_bytes: int = 0) -> errors.TritonStreamError:
    """Translates the end of an RPC.

    Args:
        code: name of the gRPC status code.
        details: its text.
        connected: whether the channel had a connection when the RPC began.
        sent_bytes: size of the request; tells "too large" from "too many", which share a code.
    """
    found = _FRONT_CODE.search(details)
    if found is not None:
        details = details[: found.start()]
        if found[1] == "UNSUPPORTED":
            return errors.UnsupportedError(details)
    if code == "DEADLINE_EXCEEDED":
        return errors.TotalTimeout(f"the deadline passed: {details}")
    if code == "UNAVAILABLE":
        if not connected:
            return errors.ConnectError(f"no connection to Triton's gRPC (port 8001 by default): {details}")
        return errors.ConnectionLost(_LOST + details)
    if code == "RESOURCE_EXHAUSTED" and sent_bytes > _LIMIT_BYTES:
        hint = f"the request has {sent_bytes} bytes; raise the receiver's limit or send encoded bytes"
        return errors.MessageTooLarge(f"{details} ({hint})", code=code)
    return _SERVER.get(code, errors.ServerError)(details or f"status {code}", code=code)


def from_text(message: str, kind: ModelKind) -> errors.TritonStreamError:
    """Translates an error that came as the text of a response."""
    coded = (ModelKind.FRONT, ModelKind.ENGINE, ModelKind.ENSEMBLE)  # an ensemble hands on its engine's
    found = _FRONT_CODE.search(message) if kind in coded else None
    if found is None:
        return errors.ServerError(message)
    if found[1] == "UNSUPPORTED":
        return errors.UnsupportedError(message[: found.start()])
    code = _GRPC_CODE.get(found[1], found[1])
    if code == "UNAVAILABLE":
        return errors.Unavailable(message[: found.start()], code=code)
    return from_status(code, message[: found.start()], connected=True)


def gives_codes(server_version: Sequence[int]) -> bool:
    """Whether a server may be asked to give errors inside a stream a status code."""
    return tuple(server_version) >= _CODED_SINCE


def is_open(error: errors.TritonStreamError) -> bool:
    """Whether the server must be asked what this error means."""
    return isinstance(error, errors.ConnectionLost) or (
        type(error) is errors.ServerError and error.code is None
    )


def settle(
    error: errors.TritonStreamError,
    *,
    model_ready: bool | None,
    server_version: Sequence[int],
    heard: bool,
    registering: bool = False,
) -> errors.TritonStreamError:
    """Says what an open error means.

    Args:
        error: of ``is_open``.
        model_ready: what the server says of the model now; None if it does not answer.
        server_version: of Triton; empty if unknown.
        heard: whether the request had got any response.
        registering: whether it was the call that makes shared memory known to the server.
    """
    if model_ready is None:
        return error
    if registering:
        why = error.message.removeprefix(_LOST)
        return errors.UnsupportedError(
            f"this server takes no inputs through shared memory ({why}): leave out shared_memory=True, or "
            "let its operator allow it"
        )
    if isinstance(error, errors.ConnectionLost):
        if model_ready and heard:  # a server that answers has no reason to break off: something between did
            return error
        kind = errors.Unavailable if model_ready else errors.ModelNotReady
        return kind(error.message.removeprefix(_LOST), code="UNAVAILABLE")
    if not model_ready:
        return errors.ModelNotReady(error.message)
    if not heard and gives_codes(server_version):  # a text without a code: turned away at the door
        return errors.InvalidRequest(error.message)
    return error


def parse_version(text: str) -> tuple[int, ...]:
    """Returns Triton's version, such as (2, 51, 0); empty for anything else."""
    parts = text.split(".")[:3]
    return tuple(int(part) for part in parts) if parts and all(part.isdigit() for part in parts) else ()
