"""Everything that tritonstream raises on purpose.

TritonStreamError
├── UsageError (ValueError)         the call cannot be sent as it is
│   └── UnsupportedError            this model, as it is deployed, cannot do what was asked
├── ClosedError (RuntimeError)      used after close(), in a forked child, or on another event loop
├── TimeoutExceeded (TimeoutError)  one of the limits in ``Timeouts``
│   ├── ConnectTimeout              no connection within ``connect_s``
│   ├── FirstTokenTimeout           connected and sent, nothing came within ``first_token_s``
│   ├── BetweenTokensTimeout        the stream fell silent for ``between_tokens_s``
│   └── TotalTimeout                the whole request, waiting and retries included, took ``total_s``
├── TransportError
│   ├── ConnectError                nobody answers there: refused, unknown host, TLS mismatch
│   └── ConnectionLost              an established connection broke
├── ServerError                     the server answered with an error
│   ├── ModelNotFound               it has no such model
│   ├── Unavailable                 it says that it cannot answer now
│   │   └── ModelNotReady           the model loads, was unloaded, or failed to load
│   ├── InvalidRequest              it refuses the request: name, dtype, shape or value of an input
│   ├── Overloaded                  a queue or pool is full
│   ├── MessageTooLarge             over the size limit of the server or of something in between
│   └── AccessDenied                credentials are missing or do not suffice
├── ProtocolError                   the server broke the protocol: lost, foreign or malformed responses
└── Refused                         the last step of a degrade chain

Errors of gRPC are translated in one place (``_status``) and kept as ``__cause__``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .events import Completion


class TritonStreamError(Exception):
    """Base of all. Where it is known, an error says for which request it stands.

    Attributes:
        message: what happened, without the place.
        model: model name.
        request_id: id of the request as it went over the wire.
        endpoint: ``host:port`` of the server.
        partial: what had arrived until then, if anything had.
    """

    partial: Completion | None = None

    def __init__(
        self,
        message: str,
        *,
        model: str | None = None,
        request_id: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.model = model
        self.request_id = request_id
        self.endpoint = endpoint

    def at(self, *, model: str | None, request_id: str | None, endpoint: str | None) -> TritonStreamError:
        """Fills in the place where it is not known yet, and returns the same error."""
        self.model = self.model or model
        self.request_id = self.request_id or request_id
        self.endpoint = self.endpoint or endpoint
        return self

    def __str__(self) -> str:
        named = {"model": self.model, "request": self.request_id, "at": self.endpoint}
        place = ", ".join(f"{word} {value}" for word, value in named.items() if value)
        return f"{self.message} [{place}]" if place else self.message


class BrokenCharacters(UserWarning):
    """A server gave U+FFFD for a part of a character; see ``Characters.PER_CHUNK``."""


class UsageError(TritonStreamError, ValueError):
    """The call cannot be sent as it is."""


class UnsupportedError(UsageError):
    """This model, as it is deployed, cannot do what was asked."""


class ClosedError(TritonStreamError, RuntimeError):
    """The client or stream was closed, or belongs to another process or event loop."""


class TimeoutExceeded(TritonStreamError, TimeoutError):
    """A limit of ``Timeouts`` was reached."""


class ConnectTimeout(TimeoutExceeded):
    """No connection within ``connect_s``."""


class FirstTokenTimeout(TimeoutExceeded):
    """The request was sent and nothing came back within ``first_token_s``."""


class BetweenTokensTimeout(TimeoutExceeded):
    """The stream had begun and fell silent for ``between_tokens_s``."""


class TotalTimeout(TimeoutExceeded):
    """The whole request took longer than ``total_s``."""


class TransportError(TritonStreamError):
    """The way to the server failed."""


class ConnectError(TransportError):
    """No connection could be made."""


class ConnectionLost(TransportError):
    """An established connection broke before the answer was complete."""


class ServerError(TritonStreamError):
    """The server answered with an error.

    Attributes:
        code: name of the gRPC status, such as ``INTERNAL``; None where the server gave only a text.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        model: str | None = None,
        request_id: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        super().__init__(message, model=model, request_id=request_id, endpoint=endpoint)
        self.code = code


class ModelNotFound(ServerError):
    """The server has no model of this name and version."""


class Unavailable(ServerError):
    """The server is there and says that it cannot answer now."""


class ModelNotReady(Unavailable):
    """The model cannot be used now: it loads, was unloaded, or failed to load."""


class InvalidRequest(ServerError):
    """The server refuses the request."""


class Overloaded(ServerError):
    """A queue, pool or quota of the server is full."""


class MessageTooLarge(ServerError):
    """A message is over the size limit of the server or of a proxy."""


class AccessDenied(ServerError):
    """Credentials are missing or do not suffice."""


class ProtocolError(TritonStreamError):
    """The server broke the protocol; the answer is not to be trusted."""


class Refused(TritonStreamError):
    """A degrade chain ended in its ``refuse`` step; ``__cause__`` is the last failure."""
