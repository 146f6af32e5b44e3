"""Many requests, a bounded number at a time, answered in order. The shells bring threads or tasks."""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from . import _checks, _params
from ._call import Call
from ._core import Core
from ._wish import Messages, Prompt
from .errors import TritonStreamError, UsageError
from .events import Completion


class _Future(Protocol):
    def result(self) -> Completion: ...


class _Refusal:
    """In place of a future, where the prompt cannot be sent."""

    def __init__(self, error: UsageError) -> None:
        self._error = error

    def result(self) -> Completion:
        raise self._error


StreamT = TypeVar("StreamT")
_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


class Window(Generic[StreamT]):
    """The requests that run, oldest first. ``size`` is how many may."""

    def __init__(self, size: int) -> None:
        _checks.whole(1, 2**20, "from 1 to 2^20")("concurrency", size)
        self.size = size
        self._queue: deque[tuple[StreamT | None, Any]] = deque()

    def add_refused(self, error: UsageError) -> None:
        self._queue.append((None, _Refusal(error)))

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
        """The future that comes next; None where there is nothing to wait for."""
        stream, future = self._queue[0]
        return None if stream is None else future

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
        return [stream for stream, _ in self._queue if stream is not None]

    def futures(self) -> list[Any]:
        return [future for stream, future in self._queue if stream is not None]


def check_prompts(prompts: Any, params: Mapping[str, Any], kinds: tuple[type, ...]) -> None:
    """Checks what holds for all prompts, so that it is not told as an error of each.

    Raises:
        UsageError: no prompts to go through, or parameters that cannot be sent.
    """
    if isinstance(prompts, (str, bytes, Mapping)) or not isinstance(prompts, kinds):
        raise UsageError(f"prompts is {type(prompts).__name__}; give a list, or anything that yields prompts")
    _params.check(params)


def carried(function: Callable[[_Argument], _Result]) -> Callable[[_Argument], _Result]:
    """The function in the caller's context wherever it runs: spans of other threads keep their parent."""
    context = contextvars.copy_context()
    return lambda argument: context.copy().run(function, argument)


def as_call(core: Core, model: str, prompt: Prompt | Messages, params: Mapping[str, Any]) -> Call:
    """The call of a prompt, or of a conversation (a list of mappings)."""
    talk = isinstance(prompt, Sequence) and not isinstance(prompt, str) and len(prompt) > 0
    if talk and isinstance(prompt[0], Mapping):
        return core.generation(model, None, cast(Messages, prompt), params, at_once=True)
    return core.generation(model, cast(Prompt, prompt), None, params, at_once=True)
