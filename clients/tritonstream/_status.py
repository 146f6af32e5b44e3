"""gRPC status → exception: the one place where lower errors are translated."""

from __future__ import annotations

from typing import Final

from . import errors

_LIMIT_BYTES: Final = 4 * 1024 * 1024  # gRPC's default for received messages (field reports: server#1776)

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


def from_status(
    code: str, details: str, *, connected: bool, model_ready: bool | None = None, sent_bytes: int = 0
) -> errors.TritonStreamError:
    """Translates the end of an RPC.

    Args:
        code: name of the gRPC status code.
        details: its text.
        connected: whether the channel had a connection when the RPC began.
        model_ready: what the server says of the model afterwards; None if it was not or could not be asked.
        sent_bytes: size of the request; tells "too large" from "too many", which share a code.
    """
    if code == "DEADLINE_EXCEEDED":
        return errors.TotalTimeout(f"the deadline passed: {details}")
    if code == "UNAVAILABLE":
        if not connected:
            return errors.ConnectError(f"no connection: {details}")
        if model_ready is None:
            return errors.ConnectionLost(f"the connection was lost: {details}")
        return errors.ModelNotReady(details, code=code)
    if code == "RESOURCE_EXHAUSTED" and sent_bytes > _LIMIT_BYTES:
        hint = f"the request has {sent_bytes} bytes; raise the receiver's limit or send encoded bytes"
        return errors.MessageTooLarge(f"{details} ({hint})", code=code)
    return _SERVER.get(code, errors.ServerError)(details or f"status {code}", code=code)


def from_text(message: str, *, model_ready: bool | None) -> errors.ServerError:
    """Translates an error text inside a stream, which has no code.

    The text is not interpreted: its wording changes from release to release.
    """
    kind = errors.ModelNotReady if model_ready is False else errors.ServerError
    return kind(message)
