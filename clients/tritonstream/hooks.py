"""What a client tells about its requests: plain hooks, and OpenTelemetry spans where it is installed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import TritonStreamError
    from .events import Completion

_log = logging.getLogger("tritonstream")
_OPERATIONS = {"generate": "text_completion"}  # as the semantic conventions call it


@dataclass(slots=True)
class RequestInfo:
    """A request as hooks see it: one object from start to finish. ``state`` is for the hooks' own use."""

    model: str
    operation: str  # generate, chat or infer
    request_id: str = ""
    endpoint: str = ""
    attempt: int = 0
    step: int = 0
    headers: dict[str, str] = field(default_factory=dict)  # sent as metadata; may be added to at the start
    state: dict[str, Any] = field(default_factory=dict)


class Hooks:
    """Base of hooks: override what is of interest. They run where the request runs and must not block.

    An exception in a hook is logged (logger ``tritonstream``) and does not touch the request.
    """

    def started(self, request: RequestInfo) -> None:
        """Before anything is sent; what is put into ``headers`` goes along."""

    def first_token(self, request: RequestInfo) -> None:
        """The first content came."""

    def retried(self, request: RequestInfo, error: TritonStreamError, wait_s: float) -> None:
        """An attempt failed and another one follows, perhaps at a later step of the degrade chain."""

    def finished(
        self, request: RequestInfo, completion: Completion | None, error: BaseException | None
    ) -> None:
        """The request is over. ``completion`` is what there is of an answer."""


class OpenTelemetryHooks(Hooks):
    """A client span a request, with its trace context sent along (W3C ``traceparent``).

    Attribute names are those of OpenTelemetry's semantic conventions for generative AI, as far as they go.
    """

    def __init__(self) -> None:
        from opentelemetry import propagate, trace  # type: ignore[import-not-found,unused-ignore]

        self._trace: Any = trace
        self._inject: Callable[..., None] = propagate.inject
        self._tracer: Any = trace.get_tracer("tritonstream")

    def started(self, request: RequestInfo) -> None:
        span = self._tracer.start_span(
            f"{request.operation} {request.model}",
            kind=self._trace.SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": _OPERATIONS.get(request.operation, request.operation),
                "gen_ai.request.model": request.model,
                "gen_ai.provider.name": "triton",
            },
        )
        request.state["otel"] = span
        self._inject(request.headers, context=self._trace.set_span_in_context(span))

    def first_token(self, request: RequestInfo) -> None:
        request.state["otel"].add_event("first_token")

    def retried(self, request: RequestInfo, error: TritonStreamError, wait_s: float) -> None:
        request.state["otel"].add_event("retry", {"error.type": type(error).__name__, "wait_s": wait_s})

    def finished(
        self, request: RequestInfo, completion: Completion | None, error: BaseException | None
    ) -> None:
        span = request.state.pop("otel")
        span.set_attribute("server.address", request.endpoint)
        span.set_attribute("tritonstream.request_id", request.request_id)
        span.set_attribute("tritonstream.attempts", request.attempt + 1)
        span.set_attribute("tritonstream.degrade_step", request.step)
        if completion is not None:
            span.set_attribute("gen_ai.response.model", request.model)
            reasons = [choice.finish_reason for choice in completion.choices if choice.finish_reason]
            if reasons:  # none of a failed request, nor of plain tensors
                span.set_attribute("gen_ai.response.finish_reasons", reasons)
            if completion.usage.prompt_tokens is not None:
                span.set_attribute("gen_ai.usage.input_tokens", completion.usage.prompt_tokens)
            if completion.usage.completion_tokens is not None:
                span.set_attribute("gen_ai.usage.output_tokens", completion.usage.completion_tokens)
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, str(error)))
        span.end()


def with_tracing(hooks: Iterable[Hooks], tracing: bool | None) -> tuple[Hooks, ...]:
    """Returns the hooks, with spans added if wanted; None: if OpenTelemetry is installed."""
    if tracing is False:
        return tuple(hooks)
    try:
        return (*hooks, OpenTelemetryHooks())
    except ImportError as error:
        if tracing:
            raise ImportError("tracing=True needs OpenTelemetry: pip install opentelemetry-api") from error
        return tuple(hooks)


def tell(hooks: Iterable[Hooks], name: str, *args: Any) -> None:
    """Calls a hook of each; see ``Hooks`` for what becomes of exceptions."""
    for hook in hooks:
        try:
            getattr(hook, name)(*args)
        except Exception:  # noqa: PERF203
            _log.exception("hook %s of %s failed", name, type(hook).__name__)
