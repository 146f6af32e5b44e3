"""One request from the caller's point of view: attempts, degrade steps, limits and events. Does no I/O.

The two shells (sync and async) drive it: ``attempt`` says where to go, ``begin`` what to send, ``received``
and ``ended`` turn what comes back into events, ``failed`` says how long to wait before the next attempt, or
raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import errors
from ._accumulate import Accumulator
from ._proto import Message, service_pb2
from ._request import stop_request
from ._retry import Budget, contradicts, degradable, retryable, wait_s
from ._routing import Endpoint, Pool
from ._settings import Metadata, Settings, new_request_id
from ._status import from_text, gives_codes
from ._task import Reader, Task
from ._timing import Clock
from .events import Completion, Event, Finish, FinishReason, Origin, TextDelta
from .hooks import RequestInfo, tell
from .models import CancelHow, ModelDescription, ModelKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._codec import Codec

_CODED = ("triton_grpc_error", "true")  # errors inside a stream come with a status code


@dataclass(frozen=True, slots=True)
class Sending:
    """What an attempt sends. ``before``: methods to be called first."""

    method: str
    message: Message
    timeout_s: float | None
    metadata: Metadata
    before: Sequence[tuple[str, Message]] = ()


class Call:
    """A request and its way through attempts. Not safe for threads; its shell sees to that."""

    def __init__(
        self, model: str, task: Task, settings: Settings, pool: Pool, budget: Budget, now: float
    ) -> None:
        self.model = model
        self.task = task
        self.settings = settings
        self.clock = Clock(settings.timeouts, now)
        self.endpoint: Endpoint | None = None
        self.description: ModelDescription | None = None
        self.reader: Reader | None = None
        self.over = False  # every event is out; what still comes from the server is no content
        self._given_id = str(task.params.get("request_id") or "")
        self.request_id = self._given_id or new_request_id()
        self._pool = pool
        self._budget = budget
        self._accumulator = Accumulator()
        self._stream = False
        self._tries = 0
        self._tried: list[Endpoint] = []
        self._attempts = 0
        self._step = 0
        self._doubted = False  # the model was asked anew what it is, after a refusal
        self._doubt: tuple[ModelDescription, errors.TritonStreamError] | None = None  # while it is asked
        self.confirmed = False  # it had not changed
        self._origin: Origin | None = None
        self._info: RequestInfo | None = None
        budget.earn()

    # Towards the server

    def attempt(self) -> Endpoint:
        """Chooses where to send the request next."""
        self.endpoint = self._pool.take(self._tried)
        self._tried.append(self.endpoint)
        self._tries += 1
        self._attempts += 1
        self.reader = None
        if self.settings.hooks and self._info is None:
            self._info = RequestInfo(self.model, self.task.operation)
            tell(self.settings.hooks, "started", self._info)
        return self.endpoint

    def connect_s(self, now: float) -> float | None:
        """How long connecting may take."""
        return _least(self.settings.timeouts.connect_s, self.clock.remaining(now))

    def config_s(self, now: float) -> float | None:
        """How long the server may take to say what the model is."""
        return _least(self.settings.timeouts.first_token_s, self.clock.remaining(now))

    @property
    def metadata(self) -> Metadata:
        extra = self._info.headers if self._info is not None else {}
        return tuple((key.lower(), value) for key, value in {**self.settings.headers, **extra}.items())

    def begin(self, model: ModelDescription, codec: Codec | None, now: float) -> Sending:
        """Builds what this attempt sends.

        Raises:
            UsageError: the model cannot do what was asked.
            TritonStreamError: what an attempt before ran into, where the model is still what it was then.
        """
        assert self.endpoint is not None
        if self._doubt is not None:
            (before, refusal), self._doubt = self._doubt, None
            self.confirmed = model == before
            if self.confirmed:
                raise refusal
            if self._info is not None:
                tell(self.settings.hooks, "retried", self._info, refusal, 0.0)
        self.description = model
        if self._attempts > 1 or (self._given_id and model.cancel.how is CancelHow.STOP_REQUEST):
            # With an id that is used twice, a stop may hit the wrong request.
            self.request_id = f"{self._given_id}.{new_request_id()}" if self._given_id else new_request_id()
        self._stream = model.decoupled
        remaining = self.clock.remaining(now)
        built = self.task.build(
            model,
            self.request_id,
            stream=self._stream,
            timeout_ms=None if remaining is None else max(1, int(remaining * 1000)),
            codec=codec,
            endpoint=self.endpoint.address,
        )
        self.reader = built.reader
        if model.kind is ModelKind.FRONT:
            self._label(built.message)
        self.clock.attempt(whole=built.whole or not self._stream)
        self._update_info()
        method = "ModelStreamInfer" if self._stream else "ModelInfer"
        coded = self._stream and gives_codes(model.server_version)
        metadata = (*self.metadata, _CODED) if coded else self.metadata
        return Sending(method, built.message, remaining, metadata, built.before)

    def _label(self, message: Message) -> None:
        """Tells a front where its metrics count this attempt."""
        if self.settings.traffic_class is not None:
            message.parameters["traffic_class"].string_param = self.settings.traffic_class
        if self._step:
            message.parameters["degrade_step"].int64_param = self._step

    @property
    def stop_engine(self) -> str | None:
        """The model that must be told to stop this request; None where cancelling the RPC does it."""
        model = self.description
        told = model is not None and model.cancel.how is CancelHow.STOP_REQUEST
        return model.cancel.engine if told and model is not None else None

    def stop_message(self, engine: ModelDescription) -> Message:
        return stop_request(engine, self.request_id)

    # From the server

    def received(self, data: Message, now: float) -> list[Event]:
        """Reads one message: of a stream, its bytes.

        Raises:
            TritonStreamError: what the server says went wrong, or a response that cannot be right.
        """
        reader = self.reader
        assert reader is not None
        if self._stream:
            text = None if self.over else reader.quick(data)
            if text is not None:
                if not text:
                    return []
                if self.clock.first is None:
                    self._tell_first()
                self.clock.arrived(now)
                self._accumulator.text(text)
                return [TextDelta(text)]
            streamed = service_pb2.ModelStreamInferResponse.FromString(data)
            if streamed.error_message:
                model = self.description
                raise from_text(streamed.error_message, ModelKind.OTHER if model is None else model.kind)
            message = streamed.infer_response
        else:
            message = data
        events = reader.feed(message)
        if self._stream:
            reader.learn(data, message)
        if events:
            if self.over:
                if reader.ended_here:
                    return []  # made before the server knew
                raise errors.ProtocolError("a response came after the final one")
            if self.clock.first is None:
                self._tell_first()
            self.clock.arrived(now)
            self._accumulator.add(events)
        if (reader.final or not self._stream) and not self.over:
            return events + self._end(None, now)
        return events

    def _tell_first(self) -> None:
        if self._info is not None:
            tell(self.settings.hooks, "first_token", self._info)

    def ended(self, now: float) -> list[Event]:
        """The server closed the stream in good order, with or without a final flag."""
        if self.over:
            return []
        if self.reader is None or not self.reader.heard:
            raise errors.ProtocolError("the server ended the stream without any response")
        return self._end(None, now)

    def cancelled(self, now: float) -> list[Event]:
        """The caller left."""
        return [] if self.over else self._end("cancelled", now)

    @property
    def stopped_early(self) -> bool:
        """Whether the client ended the request by a stop string that only it knows."""
        return self.reader is not None and self.reader.stopped

    def _end(self, reason: FinishReason | None, now: float) -> list[Event]:
        events: list[Event] = (
            [Finish(reason or "unknown")] if self.reader is None else self.reader.end(reason)
        )
        events.append(self.clock.timings(now, {} if self.reader is None else self.reader.server_ns))
        self._accumulator.add(events)
        total_s = self.settings.timeouts.total_s
        if total_s is not None and any(isinstance(e, Finish) and e.reason == "deadline" for e in events):
            # The server and this client watch the same deadline: whoever is first, the outcome is the same.
            raise errors.TotalTimeout(f"the server stopped at total_s={total_s:g}")
        self.over = True
        if self.endpoint is not None:
            self._pool.well(self.endpoint)
        self._finished(None)
        return events

    # After a failure

    def failed(self, error: errors.TritonStreamError, now: float) -> float:
        """An attempt failed.

        Returns:
            seconds to wait before the next attempt.

        Raises:
            TritonStreamError: the error, with its place and what had arrived, if there is no next attempt.
        """
        endpoint = self.endpoint
        error = self._named(error, now)
        self._place(error)
        if endpoint is not None and isinstance(error, (errors.TransportError, errors.ConnectTimeout)):
            self._pool.failed(endpoint, now)
        self.release()
        if self.clock.first is not None:  # something was given out: another attempt would repeat it
            error.partial = self.completion
        else:
            if self._doubts(error, now):
                return 0.0
            pause = self._next(error, now)
            if pause is not None:
                if self._info is not None:
                    tell(self.settings.hooks, "retried", self._info, error, pause)
                return pause
        self._finished(error)
        raise error

    def _doubts(self, error: errors.TritonStreamError, now: float) -> bool:
        """Whether the model must be asked anew what it is: once, for another may be served under its name."""
        heard = self.reader is not None and self.reader.heard
        if self._doubted or self.description is None or heard or not contradicts(error):
            return False
        self._doubted, self._doubt = True, (self.description, error)
        self._tried.clear()  # the same server is as good
        return self.clock.remaining(now) != 0.0

    def _next(self, error: errors.TritonStreamError, now: float) -> float | None:
        """Seconds until the next attempt; None if there is none."""
        remaining = self.clock.remaining(now)
        if retryable(error) and self._tries < self.settings.retry.attempts:
            pause = 0.0 if self._pool.has_fresh(self._tried) else wait_s(self.settings.retry, self._tries)
            if (remaining is None or pause < remaining) and self._budget.spend():
                return pause
        if degradable(error) and self._step < len(self.settings.degrade) and remaining != 0.0:
            self._degrade(error)
            return 0.0
        return None

    def _degrade(self, error: errors.TritonStreamError) -> None:
        step = self.settings.degrade[self._step]
        self._step += 1
        self._tries, self._tried = 0, []
        self._doubted, self._doubt, self.description, self.confirmed = False, None, None, False
        if step.refuse:
            refused = errors.Refused(f"refused at step {self._step} ({step.label}) after: {error.message}")
            self._place(refused)
            self._finished(refused)
            raise refused from error
        if step.model is not None:
            self.model = step.model
        if step.max_tokens is not None:
            self.task = self.task.shortened(step.max_tokens)

    def explained(self, exc: Exception, translated: errors.TritonStreamError | None, now: float) -> Exception:
        """The error to raise for a failed question about the model; with its place, if it is ours."""
        error = exc if isinstance(exc, errors.TritonStreamError) else translated
        return exc if error is None else self._place(self._named(error, now))

    def _named(self, error: errors.TritonStreamError, now: float) -> errors.TritonStreamError:
        """Tells the limit on the model's config from the deadline: gRPC has one status for both."""
        if not isinstance(error, errors.TotalTimeout):
            return error
        if self.reader is None and self.clock.remaining(now) != 0.0:
            return errors.FirstTokenTimeout("the server did not say what the model is within first_token_s")
        return self.clock.expire(now) or error

    def _place(self, error: errors.TritonStreamError) -> errors.TritonStreamError:
        address = self.endpoint.address if self.endpoint is not None else None
        return error.at(model=self.model, request_id=self.request_id, endpoint=address)

    def release(self) -> None:
        """The attempt no longer counts as outstanding at its endpoint."""
        if self.reader is not None:
            self.reader.discard()
        if self.endpoint is not None:
            self._origin = self.origin
            self._pool.give_back(self.endpoint)
            self.endpoint = None

    # Towards the caller

    @property
    def origin(self) -> Origin | None:
        """Where the answer comes from; None before the first attempt."""
        if self.endpoint is None:
            return self._origin
        name = self.settings.degrade[self._step - 1].label if self._step else ""
        address = self.endpoint.address
        return Origin(self.model, address, self.request_id, self._attempts - 1, self._step, name)

    @property
    def completion(self) -> Completion:
        return self._accumulator.completion(self.origin)

    def abandoned(self, error: BaseException | None) -> None:
        """Nobody reads on; hooks are told, once."""
        self._finished(error)

    def _update_info(self) -> None:
        info = self._info
        if info is not None and self.endpoint is not None:
            info.model, info.request_id, info.endpoint = self.model, self.request_id, self.endpoint.address
            info.attempt, info.step = self._attempts - 1, self._step

    def _finished(self, error: BaseException | None) -> None:
        if self._info is not None:
            self._update_info()
            info, self._info = self._info, None
            tell(self.settings.hooks, "finished", info, self.completion, error)


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)
