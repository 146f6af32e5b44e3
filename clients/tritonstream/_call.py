"""One request from the caller's point of view: attempts, degrade steps, timeouts and events. Does no I/O.

The two shells (sync and async) drive it: ``attempt`` says where to go, ``begin`` what to send, ``received``
and ``ended`` turn what comes back into events, ``failed`` says how long to wait before the next attempt, or
raises.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from . import errors
from ._accumulate import Accumulator
from ._decode import Decoder
from ._request import Codec, Wish, build, stop_request
from ._retry import Budget, degradable, retryable, wait_s
from ._routing import Endpoint, Pool
from ._timing import Clock
from .events import Completion, Event, FinishReason, Origin
from .models import CancelHow, ModelDescription
from .options import Degrade, Retry, Timeouts

if TYPE_CHECKING:
    from ._proto import Message

Metadata = tuple[tuple[str, str], ...]

_prefix = os.urandom(6).hex()  # ids are unique among all clients of a server, not only within this process
_numbers = itertools.count(1)


def new_request_id() -> str:
    return f"{_prefix}-{next(_numbers)}"


def _after_fork() -> None:
    global _prefix
    _prefix = os.urandom(6).hex()


os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a request is carried out; a client's own, with what a call overrides."""

    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    degrade: Sequence[Degrade] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_overrides(self, params: Mapping[str, object]) -> Settings:
        given = {name: params[name] for name in ("timeouts", "retry", "degrade") if name in params}
        if "headers" in params:
            given["headers"] = {**self.headers, **params["headers"]}  # type: ignore[dict-item]
        settings = replace(self, **given)  # type: ignore[arg-type]
        if "deadline_s" in params:
            settings = replace(settings, timeouts=replace(settings.timeouts, total_s=params["deadline_s"]))  # type: ignore[arg-type]
        return settings


@dataclass(frozen=True, slots=True)
class Sending:
    """What an attempt sends."""

    method: str
    message: Message
    timeout_s: float | None
    metadata: Metadata


class Call:
    """A request and its way through attempts. Not safe for threads; its shell sees to that."""

    def __init__(
        self, model: str, wish: Wish, settings: Settings, pool: Pool, budget: Budget, now: float
    ) -> None:
        self.model = model
        self.wish = wish
        self.settings = settings
        self.clock = Clock(settings.timeouts, now)
        self.endpoint: Endpoint | None = None
        self.description: ModelDescription | None = None
        self.over = False  # every event is out; what still comes from the server is not content
        self._given_id = str(wish.params.get("request_id") or "")
        self.request_id = self._given_id or new_request_id()
        self._pool = pool
        self._budget = budget
        self._accumulator = Accumulator()
        self._decoder: Decoder | None = None
        self._stream = False
        self._started = False  # an event was given out: no other attempt may follow
        self._tries = 0
        self._tried: list[Endpoint] = []
        self._attempts = 0
        self._step = 0
        budget.earn()

    # -- towards the server

    def attempt(self) -> Endpoint:
        """Chooses where to send the request next."""
        self.endpoint = self._pool.take(self._tried)
        self._tried.append(self.endpoint)
        self._tries += 1
        self._attempts += 1
        self._decoder = None
        return self.endpoint

    def connect_s(self, now: float) -> float | None:
        """How long connecting may take."""
        return _least(self.settings.timeouts.connect_s, self.clock.remaining(now))

    def config_s(self, now: float) -> float | None:
        """How long the server may take to say what the model is."""
        return _least(self.settings.timeouts.first_token_s, self.clock.remaining(now))

    @property
    def metadata(self) -> Metadata:
        return tuple((key.lower(), value) for key, value in self.settings.headers.items())

    def begin(self, model: ModelDescription, codec: Codec | None, now: float) -> Sending:
        """Builds what this attempt sends.

        Raises:
            UsageError: the model cannot do what was asked.
        """
        self.description = model
        if self._attempts > 1 or (self._given_id and model.cancel.how is CancelHow.STOP_REQUEST):
            # An id that is used twice would let a stop hit the wrong request.
            base = self._given_id or self.request_id.partition(".")[0]
            self.request_id = f"{base}.{new_request_id()}" if self._given_id else new_request_id()
        self._stream = model.decoupled
        remaining = self.clock.remaining(now)
        built = build(
            model,
            self.wish,
            self.request_id,
            stream=self._stream,
            timeout_ms=None if remaining is None else max(1, int(remaining * 1000)),
            codec=codec,
        )
        self._decoder = Decoder(model, self.wish, built, codec, stream=self._stream)
        self.clock.attempt(whole=not self._stream)
        return Sending(
            "ModelStreamInfer" if self._stream else "ModelInfer",
            built.message,
            remaining,
            self.metadata,
        )

    def stop_message(self, engine: ModelDescription) -> Message:
        return stop_request(engine, self.request_id)

    @property
    def stop_engine(self) -> str | None:
        """The model that must be told to stop this request; None where cancelling the RPC does it."""
        model = self.description
        return (
            model.cancel.engine if model is not None and model.cancel.how is CancelHow.STOP_REQUEST else None
        )

    # -- from the server

    def received(self, message: Message, now: float) -> list[Event]:
        """Reads one message.

        Raises:
            TritonStreamError: what the server says went wrong, or a response that cannot be right.
        """
        assert self._decoder is not None
        if self._stream:
            if message.error_message:
                raise errors.ServerError(message.error_message)
            message = message.infer_response
        events, final = self._decoder.feed(message)
        if self.over:
            if events:
                raise errors.ProtocolError("a response came after the final one")
            return []
        if events:
            self.clock.arrived(now)
            self._started = True
        if final or self._decoder.stopped or not self._stream:
            return events + self._end(None, now, events)
        self._accumulator.add(events)
        return events

    def ended(self, now: float) -> list[Event]:
        """The server closed the stream in good order, with or without a final flag."""
        if self.over:
            return []
        if not self._started:
            raise errors.ProtocolError("the server ended the stream without any response")
        return self._end(None, now, [])

    def cancelled(self, now: float, reason: FinishReason = "cancelled") -> list[Event]:
        """The caller left."""
        if self.over:
            return []
        return self._end(reason, now, [])

    def _end(self, reason: FinishReason | None, now: float, before: list[Event]) -> list[Event]:
        self.over = True
        self._accumulator.add(before)
        events: list[Event] = []
        server_ns: dict[str, int] = {}
        if self._decoder is not None:
            events = self._decoder.end(reason)
            server_ns = self._decoder.server_ns
        events.append(self.clock.timings(now, server_ns))
        self._accumulator.add(events)
        if self.endpoint is not None:
            self._pool.well(self.endpoint)
        return events

    @property
    def stopped_early(self) -> bool:
        """Whether the client ended the request (a stop string that only it knows), so the server must be told."""
        return self._decoder is not None and self._decoder.stopped

    def failed(self, error: errors.TritonStreamError, now: float) -> float:
        """An attempt failed.

        Returns:
            seconds to wait before the next attempt.

        Raises:
            TritonStreamError: the error, with its place and what had arrived, if there is no next attempt.
        """
        endpoint = self.endpoint
        if (
            self._decoder is None
            and isinstance(error, errors.TotalTimeout)
            and self.clock.remaining(now) != 0.0
        ):
            error = errors.FirstTokenTimeout("the server did not say what the model is within first_token_s")
        self.release()
        error.at(
            model=self.model,
            request_id=self.request_id,
            endpoint=endpoint.address if endpoint else None,
        )
        if endpoint is not None and isinstance(error, (errors.TransportError, errors.ConnectTimeout)):
            self._pool.failed(endpoint, now)
        if self._started:
            error.partial = self.completion
            raise error
        if retryable(error) and self._tries < self.settings.retry.attempts and self._budget.spend():
            pause = 0.0 if self._pool.has_fresh(self._tried) else wait_s(self.settings.retry, self._tries)
            remaining = self.clock.remaining(now)
            if remaining is None or pause < remaining:
                return pause
        if degradable(error) and self._step < len(self.settings.degrade):
            self._degrade(error)
            return 0.0
        raise error

    def explained(self, exc: Exception, translated: errors.TritonStreamError | None) -> Exception:
        """The error to raise for a failed question about the model: typed and with its place, if it is ours."""
        error = exc if isinstance(exc, errors.TritonStreamError) else translated
        if error is None:
            return exc
        address = self.endpoint.address if self.endpoint else None
        return error.at(model=self.model, request_id=None, endpoint=address)

    def _degrade(self, error: errors.TritonStreamError) -> None:
        step = self.settings.degrade[self._step]
        self._step += 1
        self._tries, self._tried = 0, []
        if step.refuse:
            refused = errors.Refused(f"refused at step {self._step} ({step.label}) after: {error.message}")
            raise refused.at(model=self.model, request_id=self.request_id, endpoint=error.endpoint) from error
        if step.model is not None:
            self.model = step.model
        if step.max_tokens is not None:
            self.wish = self.wish.shortened(step.max_tokens)

    def release(self) -> None:
        """The attempt no longer counts as outstanding at its endpoint."""
        if self.endpoint is not None:
            self._pool.give_back(self.endpoint)
            self._origin = self._make_origin()
            self.endpoint = None

    # -- towards the caller

    _origin: Origin | None = None

    @property
    def origin(self) -> Origin | None:
        """Where the answer comes from; None before the first attempt."""
        return self._make_origin() if self.endpoint is not None else self._origin

    def _make_origin(self) -> Origin | None:
        if self.endpoint is None:
            return None
        name = self.settings.degrade[self._step - 1].label if self._step else ""
        return Origin(
            self.model, self.endpoint.address, self.request_id, self._attempts - 1, self._step, name
        )

    @property
    def completion(self) -> Completion:
        return self._accumulator.completion(self.origin)


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)
