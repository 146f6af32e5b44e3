"""What a call carries: something that builds its request for a model, and a reader of the responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .events import Event, FinishReason
from .models import ModelDescription

if TYPE_CHECKING:
    from ._codec import Codec
    from ._proto import Message


class Reader(Protocol):
    """Turns the responses of one attempt into events; see ``_decode.Decoder`` for the attributes."""

    final: bool
    ended_here: bool
    stopped: bool
    heard: bool
    server_ns: dict[str, int]

    def quick(self, data: bytes) -> str | None:
        """The text of a serialised stream message that holds nothing else new; None: it must be parsed."""

    def learn(self, data: bytes, response: Message) -> None:
        """Takes a message that was parsed as an example for ``quick``."""

    def feed(self, response: Message) -> list[Event]: ...

    def end(self, reason: FinishReason | None = None) -> list[Event]: ...

    def discard(self) -> None:
        """The attempt is over, well or not; may be called more than once."""


@dataclass(frozen=True, slots=True)
class Built:
    """An attempt's request.

    Attributes:
        whole: the answer comes in one piece, although the method streams.
        before: what must be called before it is sent: (method, message).
    """

    message: Message
    reader: Reader
    whole: bool = False
    before: Sequence[tuple[str, Message]] = ()


class Task(Protocol):
    """What the caller wants, whichever model does it."""

    @property
    def operation(self) -> str: ...

    @property
    def params(self) -> Mapping[str, Any]: ...

    def needs_codec(self, model: ModelDescription) -> bool: ...

    def shortened(self, max_tokens: int) -> Task: ...

    def build(
        self,
        model: ModelDescription,
        request_id: str,
        *,
        stream: bool,
        timeout_ms: int | None,
        codec: Codec | None,
        endpoint: str,
    ) -> Built: ...
