"""The seam between the client and the network, for tests, recorders and other carriers.

A transport stands for one endpoint. The default ones speak gRPC; pass ``transport=`` (a function from
address to transport) to a client to bring your own. Messages are Triton's protobuf messages, except for the
responses of a streaming method, which are their bytes: most need not be parsed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ._proto import Message
    from ._settings import Metadata
    from .errors import TritonStreamError


class Rpc(Iterator["Message"], Protocol):
    """Messages of one call, one for a unary method. ``cancel`` may come from any thread at any time."""

    def cancel(self) -> object: ...


class Transport(Protocol):
    """Calls of one endpoint, for ``Client``."""

    def connect(self, timeout_s: float | None) -> bool:
        """Waits until a connection stands or has failed, and says which; why shows in the call that follows.

        Raises:
            ConnectTimeout: neither within ``timeout_s``.
        """

    def call(self, method: str, message: Message, timeout_s: float | None, metadata: Metadata) -> Rpc:
        """Sends a message by the method of this name and returns its responses."""

    def drop(self, rpc: Rpc) -> None:
        """Cancels a call that nobody reads any more and frees what it holds. Idempotent."""

    def translate(self, error: Exception, sent: Message, connected: bool) -> TritonStreamError | None:
        """Returns an error of this transport as one of the tree; None if it is none of its errors.

        ``sent`` is the request or None; ``connected``, what ``connect`` said before it.
        """

    def close(self) -> None: ...


class AsyncRpc(Protocol):
    """As ``Rpc``, within one event loop."""

    def __aiter__(self) -> AsyncIterator[Message]: ...

    def __anext__(self) -> Awaitable[Message]: ...

    def cancel(self) -> object: ...


class AsyncTransport(Protocol):
    """Calls of one endpoint, for ``AsyncClient``."""

    def connect(self, timeout_s: float | None) -> Awaitable[bool]: ...

    def call(
        self, method: str, message: Message, timeout_s: float | None, metadata: Metadata
    ) -> AsyncRpc: ...

    def translate(self, error: Exception, sent: Message, connected: bool) -> TritonStreamError | None: ...

    def close(self) -> Awaitable[None]: ...
