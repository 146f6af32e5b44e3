"""Many requests, a bounded number at a time, answered in order. The shells bring threads or tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from . import _checks
from ._call import Call
from ._core import Core
from ._wish import Messages, Prompt
from .errors import TritonStreamError
from .events import Completion


class _Future(Protocol):
    def result(self) -> Completion: ...


StreamT = TypeVar("StreamT")


class Window(Generic[StreamT]):
    """The requests that run, oldest first. ``size`` is how many may."""

    def __init__(self, size: int) -> None:
        _checks.whole(1, 2**20, "from 1 to 2^20")("concurrency", size)
        self.size = size
        self._queue: deque[tuple[StreamT, Any]] = deque()

    def add(self, stream: StreamT, future: Any) -> None:
        self._queue.append((stream, future))

    @property
    def full(self) -> bool:
        return len(self._queue) >= self.size

    @property
    def running(self) -> bool:
        return bool(self._queue)

    @property
    def oldest(self) -> Any:
        return self._queue[0][1]

    def next_result(self, return_errors: bool) -> Completion | Exception:
        """The oldest request's answer; waits for it where futures can wait."""
        _, future = self._queue.popleft()
        try:
            return cast(_Future, future).result()
        except TritonStreamError as exc:
            if not return_errors:
                raise
            return exc

    def unread(self) -> Iterable[StreamT]:
        return [stream for stream, _ in self._queue]

    def futures(self) -> list[Any]:
        return [future for _, future in self._queue]


def as_call(core: Core, model: str, prompt: Prompt | Messages, params: Mapping[str, Any]) -> Call:
    """The call of a prompt, or of a conversation (a list of mappings)."""
    talk = isinstance(prompt, Sequence) and not isinstance(prompt, str) and len(prompt) > 0
    if talk and isinstance(prompt[0], Mapping):
        return core.generation(model, None, cast(Messages, prompt), params, at_once=True)
    return core.generation(model, cast(Prompt, prompt), None, params, at_once=True)
