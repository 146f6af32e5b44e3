"""The load generator: one event loop that sends when the load says, and notes when everything came.

Everything is measured with ``time.monotonic``; a wall clock that jumps changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from trtbuild.measure.load.arrivals import Arrival, arrivals, classes
from trtbuild.measure.load.sample import RequestSample
from trtbuild.measure.load.shapes import user_starts
from trtbuild.measure.load.spec import Closed, Flow, LoadSpec, Replay, Traffic
from trtbuild.measure.load.trace import TraceRow, read_trace
from trtbuild.measure.load.urgent import Schedule, sending

if TYPE_CHECKING:
    from trtbuild.measure.load.calls import Caller

LAG_EVERY_S = 0.05
# So many failed connections in a row, and a server that does not say it is ready: there is nobody to measure.
DEAD_AFTER = 3


class ServerDied(Exception):
    """Nobody answers any more; ``args[0]`` says since when."""


@dataclass
class Progress:
    """What a display may show; changed in place while the run goes on."""

    elapsed_s: float = 0.0
    running: int = 0
    running_max: int = 0
    done: int = 0
    failed: int = 0
    tokens: int = 0
    recent_ttft_s: list[float] = field(default_factory=list)


class Generator:
    """Runs one load.

    Args:
        load: what to send.
        callers: by model, how a request is made.
        on_sample: called with each request once it is over.
        is_ready: whether the server says that it is; asked when connections fail.
        begin: ``time.monotonic()`` of second 0.

    Attributes:
        lag_max_s: the longest that the event loop was late for a timer.
        sending_ended_s: when the last request was meant to be sent, or the time was up.
    """

    def __init__(
        self,
        load: LoadSpec,
        callers: dict[str, Caller],
        *,
        on_sample: Callable[[RequestSample], None],
        is_ready: Callable[[], Awaitable[bool]],
        begin: float,
    ) -> None:
        self._load = load
        self._callers = callers
        self._on_sample = on_sample
        self._is_ready = is_ready
        self._begin = begin
        self._numbers = 0
        self._lost = 0
        self._schedules: list[Schedule[Arrival]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._died: str = ""
        self._error: BaseException | None = None  # a request that cannot be made at all
        self.lag_max_s = 0.0
        self.sending_ended_s: float | None = None
        self.progress = Progress()

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._begin

    def look(self) -> float:
        """As ``now``, for whoever reads answers: what is due by then is sent first."""
        now_s = time.monotonic() - self._begin
        for schedule in self._schedules:
            if schedule.due_s <= now_s:
                schedule.fire()
        return now_s

    async def run(self) -> None:
        """Sends until the time or the number of requests is up, then waits for what still runs.

        Raises:
            ServerDied: when nobody answers any more. What was measured until then was handed on.
            MeasureError: a request that cannot be made at all.
        """
        watch = asyncio.ensure_future(self._watch())
        stop = asyncio.ensure_future(self._stopped.wait())
        flows = [asyncio.ensure_future(self._flow(flow)) for flow in self._load.flows]
        all_sent: asyncio.Future[Any] = asyncio.gather(*flows)
        ends: list[asyncio.Future[Any]] = [stop, all_sent]
        try:
            await asyncio.wait(ends, timeout=self._load.duration_s, return_when=asyncio.FIRST_COMPLETED)
            self.sending_ended_s = min(self.now(), self._load.duration_s)
            if self._error is not None:
                raise self._error
            if all_sent.done():
                all_sent.result()
            await self._end(flows)
        finally:
            left: list[asyncio.Future[Any]] = [watch, all_sent, stop, *flows, *self._tasks]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if self._died:
            raise ServerDied(self._died)

    async def _end(self, flows: list[asyncio.Task[None]]) -> None:
        """No new requests; those that run may finish within their time limit."""
        for flow in flows:
            if not flow.done():
                flow.cancel()
        await asyncio.gather(*flows, return_exceptions=True)
        if self._tasks and not self._died:
            await asyncio.wait(self._tasks, timeout=self._load.timeout_s)

    async def _flow(self, flow: Flow) -> None:
        if isinstance(flow.shape, Closed):
            draw = classes(flow, self._load.seed)
            users = [self._user(flow, draw, start_s) for start_s in user_starts(flow.shape)]
            await asyncio.gather(*users)
            return

        def send(due_s: float, arrival: Arrival) -> None:
            if not self._full:  # of all flows together
                with sending():
                    self._start(flow, arrival.traffic, due_s, arrival.row)

        items = islice(arrivals(flow, self._load), self._load.requests)
        schedule = Schedule(((one.at_s, one) for one in items), send, self.now)
        self._schedules.append(schedule)
        try:
            await schedule.done
        finally:
            schedule.stop()
        if not isinstance(flow.shape, Replay) and not self._full:
            await asyncio.sleep(self._load.duration_s - self.now())

    @property
    def _full(self) -> bool:
        return self._load.requests is not None and self._numbers >= self._load.requests

    def _start(
        self, flow: Flow, traffic: Traffic, intended_s: float, row: TraceRow | None
    ) -> asyncio.Task[None]:
        """One request, counted at once: whoever asks next whether there is room for another knows of it."""
        number, self._numbers = self._numbers, self._numbers + 1
        task = asyncio.ensure_future(self._one(number, flow, traffic, intended_s, row))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._error = self._error or task.exception()
            self._stopped.set()

    async def _user(self, flow: Flow, draw: Iterator[Traffic], start_s: float) -> None:
        """One user of a closed loop. A request in flight when the time is up is finished, not cut."""
        assert isinstance(flow.shape, Closed)
        await asyncio.sleep(max(0.0, start_s - self.now()))
        while not self._full and self.now() < self._load.duration_s:
            await asyncio.shield(self._start(flow, next(draw), self.now(), None))
            if flow.shape.think_s:
                await asyncio.sleep(flow.shape.think_s)

    async def _one(
        self, number: int, flow: Flow, traffic: Traffic, intended_s: float, row: TraceRow | None
    ) -> None:
        sample = RequestSample(
            number=number,
            traffic=traffic.name,
            model=flow.model,
            kind="vision" if traffic.kind == "vision" else "text",
            phase="warmup" if intended_s < self._load.warmup_s else "measured",
            intended_s=intended_s,
        )
        progress = self.progress
        progress.running += 1
        progress.running_max = max(progress.running_max, progress.running)
        try:
            await self._callers[flow.model].call(traffic, sample, self.look, row)
        except asyncio.CancelledError:
            sample.end_s = self.now()
            raise
        finally:
            progress.running -= 1
            self._count(sample)
            self._on_sample(sample)
        if sample.error.startswith(("ConnectError", "ConnectionLost", "ConnectTimeout")):
            await self._mourn()
        else:
            self._lost = 0

    def _count(self, sample: RequestSample) -> None:
        progress = self.progress
        progress.done += 1
        progress.failed += sample.outcome != "ok"
        progress.tokens += sum(sample.arrival_tokens)
        if sample.ttft_s is not None:
            progress.recent_ttft_s = [*progress.recent_ttft_s[-199:], sample.ttft_s]

    async def _mourn(self) -> None:
        """A connection failed: sees whether the server is gone, and does not hammer it meanwhile."""
        self._lost += 1
        await asyncio.sleep(LAG_EVERY_S)
        if self._lost < DEAD_AFTER or self._died:
            return
        ready = False
        with contextlib.suppress(Exception):
            ready = await self._is_ready()
        if not ready and not self._died:
            self._died = f"no answer since {self.now():.1f} s"
            self._stopped.set()

    async def _watch(self) -> None:
        """How late the event loop comes round to a timer: the generator's own tardiness."""
        while True:
            due = self.now() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self.lag_max_s = max(self.lag_max_s, self.now() - due)
            self.progress.elapsed_s = self.now()


def trace_files(load: LoadSpec) -> Iterator[tuple[TraceRow, ...]]:
    """The traces of a load, read: so that a bad one is refused before anything is sent."""
    for flow in load.flows:
        if isinstance(flow.shape, Replay):
            yield read_trace(flow.shape.path)
