"""One request: made through ``tritonstream``, timed where each response arrives, its outcome named."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tritonstream import (
    Degrade,
    Event,
    GenerateParams,
    ModelDescription,
    ModelKind,
    Overloaded,
    Refused,
    Retry,
    TextDelta,
    TimeoutExceeded,
    Timeouts,
    TokenIds,
    TritonStreamError,
    UsageError,
)
from trtbuild.errors import MeasureError
from trtbuild.measure.load.prompts import FilePrompts, Prompt, Sizing, TextPrompts, words
from trtbuild.measure.load.sample import Outcome, RequestSample
from trtbuild.measure.load.spec import Flow, LoadSpec, Traffic, VisionTraffic
from trtbuild.measure.load.trace import TraceRow
from trtbuild.measure.load.urgent import FirstStep

if TYPE_CHECKING:
    from tritonstream import AsyncClient, AsyncStream

Now = Callable[[], float]
_ONCE = Retry(attempts=1)  # what is measured is the server, not the client's patience
_SIZING_S = 5.0  # at least, for an answer of one token
_PROBES = (32, 160)  # words; far enough apart for the slope, short enough for any model


class Caller(Protocol):
    """Makes the requests of one flow."""

    async def warm(self) -> None:
        """Makes one request that counts nowhere: the connection is there then, and the code was run."""

    async def call(self, traffic: Traffic, sample: RequestSample, now: Now, row: TraceRow | None) -> None:
        """Makes one request and fills in the sample. Failures become its outcome."""


async def make_caller(client: AsyncClient, flow: Flow, load: LoadSpec, *, salt: str) -> Caller:
    """The caller of a flow: asks what the model is, and how many tokens its words are.

    Args:
        salt: goes into generated prompts beside the seed: a server has seen no prompt of an earlier run.

    Raises:
        MeasureError: the model cannot be called with this traffic.
        TritonStreamError: the server does not know the model, or cannot be reached.
    """
    model = await client.describe(flow.model)
    pictures = [item for item in flow.traffic if isinstance(item, VisionTraffic)]
    if pictures:
        return VisionCaller(client, model, pictures, load)
    if model.kind in (ModelKind.OCR, ModelKind.OTHER):
        raise MeasureError(
            f"{model.name} generates no text, and the traffic {flow.traffic[0].name} is text",
            "--traffic vision",
        )
    sizing = Sizing()
    if model.kind is not ModelKind.ENGINE:
        # A short limit is for whole answers under load, and may be meant to break them.
        sizing = await prompt_sizing(client, model, timeout_s=max(load.timeout_s, _SIZING_S))
    return TextCaller(client, model, flow, load, sizing, salt)


async def prompt_sizing(client: AsyncClient, model: ModelDescription, *, timeout_s: float) -> Sizing:
    """Words to tokens, as the server counts them; 1 to 1 where it does not tell."""
    points, timeouts = [], Timeouts(first_token_s=timeout_s, total_s=timeout_s)
    for number, count in enumerate(_PROBES):
        text = words(count, random.Random(f"probe {number}"))
        answer = await client.generate(model.name, text, max_tokens=1, retry=_ONCE, timeouts=timeouts)
        if answer.usage.prompt_tokens is None:
            return Sizing()
        points.append((count, answer.usage.prompt_tokens))
    return Sizing.through(*points)


class TextCaller:
    """Streams text and counts tokens by the ids that the server sends."""

    def __init__(
        self,
        client: AsyncClient,
        model: ModelDescription,
        flow: Flow,
        load: LoadSpec,
        sizing: Sizing,
        salt: str,
    ) -> None:
        self._client = client
        self._model = model
        self._prompts: dict[str, TextPrompts | FilePrompts] = {}
        as_ids = self._as_ids = model.kind is ModelKind.ENGINE
        for traffic in flow.traffic:
            if traffic.kind == "text":
                made = TextPrompts(traffic, seed=f"{load.seed}/{salt}", sizing=sizing, as_ids=as_ids)
                self._prompts[traffic.name] = made
            elif traffic.kind == "file":
                self._prompts[traffic.name] = FilePrompts(traffic)
        self.sends_ids = "token_ids" in model.outputs or as_ids
        self.keeps_length = "min_tokens" in model.inputs
        steps = [Degrade(step.model, step.max_tokens, step.refuse) for step in load.degrade]
        timeouts = Timeouts(
            first_token_s=load.timeout_s, between_tokens_s=load.timeout_s, total_s=load.timeout_s
        )
        self._fixed: GenerateParams = {"timeouts": timeouts, "retry": _ONCE}
        if steps:
            self._fixed["degrade"] = steps
        if self.sends_ids:
            self._fixed["token_ids"] = True

    async def call(self, traffic: Traffic, sample: RequestSample, now: Now, row: TraceRow | None) -> None:
        prompt = self._prompt(traffic, sample.number, row)
        sample.max_tokens, sample.prefix_tokens = prompt.output_tokens, prompt.prefix_tokens
        try:
            stream = await self._stream(prompt, "interactive" if traffic.interactive else "offline")
        except UsageError as error:
            where = prompt.place or f"request {sample.number} of {traffic.name}"
            raise MeasureError(f"{where} cannot be sent: {error.message}") from error
        async with stream:
            sample.sent_s = now()
            try:
                await self._read(stream, sample, now)
                sample.outcome = "ok"
            except TritonStreamError as error:
                sample.outcome = _outcome(error)
                sample.error = f"{type(error).__name__}: {error.message}"
            sample.end_s = now()
        _finish(stream, sample)

    async def warm(self) -> None:
        """See `Caller`; the prompt is none of the load's, so that nothing of those is cached."""
        rng = random.Random("warm")
        if self._as_ids:
            prompt = Prompt(ids=tuple(rng.choices(range(1000, 5000), k=_PROBES[0])), output_tokens=4)
        else:
            prompt = Prompt(text=words(_PROBES[0], rng), output_tokens=4)
        with contextlib.suppress(TritonStreamError):  # the load itself will tell
            async with await self._stream(prompt) as stream:
                await self._read(stream, RequestSample(0, "", "", "text", "warmup", 0.0), time.monotonic)

    async def _read(self, stream: AsyncStream, sample: RequestSample, now: Now) -> None:
        times, counts = sample.arrival_s, sample.arrival_tokens
        counted = TokenIds if self.sends_ids else TextDelta

        def note(event: Event) -> None:
            if type(event) is counted:
                at_s = now()
                if not times:
                    sample.first_s = at_s
                times.append(at_s)
                counts.append(len(event.ids) if type(event) is TokenIds else 1)

        with contextlib.suppress(StopAsyncIteration):
            note(await FirstStep(stream.__anext__()))
        async for event in stream:
            note(event)

    def _prompt(self, traffic: Traffic, number: int, row: TraceRow | None) -> Prompt:
        if row is not None and row.prompt is not None:
            return Prompt(
                text=row.prompt, output_tokens=row.output_tokens, exact=row.output_tokens is not None
            )
        lengths = (
            {} if row is None else {"input_tokens": row.input_tokens, "output_tokens": row.output_tokens}
        )
        return self._prompts[traffic.name].make(number, **lengths)

    async def _stream(self, prompt: Prompt, traffic_class: str | None = None) -> AsyncStream:
        params = self._fixed.copy()
        if traffic_class is not None:
            params["traffic_class"] = traffic_class
        if prompt.output_tokens is not None:
            params["max_tokens"] = prompt.output_tokens
            if prompt.exact and self.keeps_length:
                params["min_tokens"] = prompt.output_tokens
        if prompt.messages is not None:
            return await self._client.chat(self._model.name, prompt.messages, stream=True, **params)
        return self._client.stream(self._model.name, prompt.ids or prompt.text or "", **params)


def _outcome(error: TritonStreamError) -> Outcome:
    if isinstance(error, TimeoutExceeded):
        return "timeout"
    if isinstance(error, (Overloaded, Refused)):
        return "refused"
    return "error"


def _finish(stream: AsyncStream, sample: RequestSample) -> None:
    """What the server tells at the end: its own counts, whether it gave up, and who answered."""
    done = stream.completion
    sample.prompt_tokens = done.usage.prompt_tokens
    sample.output_tokens = done.usage.completion_tokens
    if sample.output_tokens is None and sample.arrival_tokens:
        sample.output_tokens = sum(sample.arrival_tokens)
    if sample.outcome == "ok" and done.finish_reason == "cancelled":
        sample.outcome = "cancelled"
    if sample.outcome == "ok" and done.finish_reason == "deadline":
        sample.outcome = "timeout"
    if done.origin is not None:
        sample.degrade_step = done.origin.step


class VisionCaller:
    """Sends encoded pictures; the answer comes in one piece."""

    def __init__(
        self, client: AsyncClient, model: ModelDescription, traffic: list[VisionTraffic], load: LoadSpec
    ) -> None:
        self._client = client
        self._model = model
        self._inputs = {item.name: picture_inputs(model, _picture(item)) for item in traffic}
        self._timeouts = Timeouts(first_token_s=load.timeout_s, total_s=load.timeout_s)

    async def warm(self) -> None:
        """See `Caller`."""
        with contextlib.suppress(TritonStreamError):
            for inputs in self._inputs.values():
                await self._client.infer(self._model.name, inputs, timeouts=self._timeouts, retry=_ONCE)

    async def call(self, traffic: Traffic, sample: RequestSample, now: Now, row: TraceRow | None) -> None:
        sample.sent_s = now()
        try:
            await self._client.infer(
                self._model.name, self._inputs[traffic.name], timeouts=self._timeouts, retry=_ONCE
            )
            sample.first_s = now()
            sample.outcome = "ok"
        except UsageError as error:
            raise MeasureError(
                f"{self._model.name} cannot be called with a picture: {error.message}"
            ) from error
        except TritonStreamError as error:
            sample.outcome = _outcome(error)
            sample.error = f"{type(error).__name__}: {error.message}"
        sample.end_s = now()


def picture_inputs(model: ModelDescription, picture: bytes) -> Mapping[str, Any]:
    """The inputs of a model that takes one encoded picture.

    Raises:
        MeasureError: the model needs something else.
    """
    needed = [spec for spec in model.inputs.values() if not spec.optional]
    takers = [spec for spec in needed if spec.dtype == "BYTES"]
    if len(needed) != 1 or len(takers) != 1:
        names = ", ".join(f"{spec.name} ({spec.dtype})" for spec in needed)
        raise MeasureError(
            f"{model.name} cannot be sent an encoded picture alone: it "
            + (f"needs {names}" if names else "has no input that one could be"),
            "name a model that takes JPEG, PNG or WebP bytes, such as the front of a vision pipeline",
        )
    return {takers[0].name: picture}


def _picture(traffic: VisionTraffic) -> bytes:
    if traffic.picture is not None:
        return traffic.picture.read_bytes()
    from trtbuild.measure.load.page import drawn_page

    return drawn_page()
