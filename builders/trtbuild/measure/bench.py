"""One measured run: load on a server, its own side watched, everything kept."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from trtbuild.errors import MeasureError, ServeError
from trtbuild.measure.load.calls import make_caller
from trtbuild.measure.load.generator import Generator, Progress, ServerDied, trace_files
from trtbuild.measure.load.prompts import read_prompts
from trtbuild.measure.load.sample import RequestSample
from trtbuild.measure.load.spec import LoadSpec
from trtbuild.measure.load.urgent import SendFirstLoop
from trtbuild.measure.machine import machine_facts, versions
from trtbuild.measure.metrics import summarise
from trtbuild.measure.notes import LATE_S, caller_notes, judged, trace_notes
from trtbuild.measure.records.changes import changed_since
from trtbuild.measure.records.record import Record, TimelineRow
from trtbuild.measure.records.store import RequestRow, Store, request_row
from trtbuild.measure.server import MeasuredServer

KEEP_EVERY_S = 1.0
SAMPLE_EVERY_S = 0.5
COLLECT_AFTER = 2000  # failed requests, each of which leaves some kilobytes in cycles
_SWITCH_S = 0.0005  # between threads, so that keeping a run does not delay sending
_ENDS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_PATIENCE = 3  # times that a run is told to end before it leaves its record without one


def check_load(load: LoadSpec) -> None:
    """Reads every file that the load names, before anything is sent.

    Raises:
        MeasureError: a trace or prompt file that cannot be used.
    """
    for _ in trace_files(load):
        pass
    for flow in load.flows:
        for traffic in flow.traffic:
            if traffic.kind == "file":
                read_prompts(traffic.path)
            if traffic.kind == "vision" and traffic.picture is not None and not traffic.picture.is_file():
                raise MeasureError(f"there is no picture {traffic.picture}")


def bench(
    server: MeasuredServer,
    load: LoadSpec,
    store: Store,
    *,
    label: str = "",
    kind: str = "bench",
    series: str | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Record:
    """Runs a load and records it.

    Returns:
        the record; ``state`` says whether it is complete, or could not be kept.

    Raises:
        MeasureError: a load that cannot be sent.
        ServeError: the server cannot be reached, or does not know the model.
        KeyboardInterrupt: after what was measured is recorded as interrupted; its text says where.
    """
    check_load(load)
    record = Record(load=load.model_dump(mode="json"), label=label, kind=kind, series=series, seed=load.seed)
    record.deployment = server.facts(list(dict.fromkeys(flow.model for flow in load.flows)))
    record.machine, record.versions = machine_facts(), versions()
    told = server.version()
    record.versions |= {"server": told} if told else {}
    run = _Run(server, load, store, record, on_progress)
    with _Ends() as ends:
        try:
            _run(run.measure(), ends)
        finally:
            run.finish()
    if ends.told:
        raise KeyboardInterrupt(
            f"what was measured is kept: trtbuild runs {record.run_id}" if run.kept else ""
        )
    return record


class _Ends:
    """Ctrl-C, SIGTERM and a terminal that closes end a run; not in a thread, which has no signals.

    The run is cancelled where it waits: an exception in the midst of a callback would lose what that was
    about to tell, and gRPC wait for it for ever. While the record gets its end, one more is not heard.
    """

    def __init__(self) -> None:
        self.told = 0
        self._before: dict[int, Any] = {}
        self._cancel: Callable[[], object] | None = None

    def __enter__(self) -> _Ends:
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in _ENDS}
            # What is ignored stays so: nohup, or a background job of a shell.
            self._before = {key: value for key, value in handlers.items() if value is not signal.SIG_IGN}
            for number in self._before:
                signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def cancels(self, cancel: Callable[[], object]) -> None:
        """What the signals do from now on."""
        self._cancel = cancel
        if self.told:
            cancel()

    def _hear(self, *_: object) -> None:
        self.told += 1
        if self.told >= _PATIENCE:
            raise KeyboardInterrupt
        if self.told == 1 and self._cancel is not None:
            self._cancel()


def _run(work: Coroutine[Any, Any, None], ends: _Ends) -> None:
    """``asyncio.run`` on a `SendFirstLoop`; ``asyncio.Runner`` is there from Python 3.11 only."""
    loop = SendFirstLoop()
    try:
        asyncio.set_event_loop(loop)
        task = loop.create_task(work)
        # From a signal's handler, which the loop has to be woken for.
        ends.cancels(lambda: loop.is_closed() or loop.call_soon_threadsafe(task.cancel))
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            if not ends.told:
                raise
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()


class _Run:
    def __init__(
        self,
        server: MeasuredServer,
        load: LoadSpec,
        store: Store,
        record: Record,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._server, self._load, self._store, self._record = server, load, store, record
        self._on_progress = on_progress
        self._new_rows: list[RequestRow] = []
        self._new_timeline: list[TimelineRow] = []
        self._generator: Generator | None = None
        self._cpu_s = 0.0
        self._begin = 0.0
        self._begun = False
        self._failed = 0  # since the last collection

    @property
    def kept(self) -> bool:
        """Whether the record is in the store."""
        return self._begun and self._record.state != "not kept"

    async def measure(self) -> None:
        from tritonstream import AsyncClient, TritonStreamError

        load, record = self._load, self._record
        async with AsyncClient(self._server.address, tracing=False) as client:
            try:
                callers = {
                    flow.model: await make_caller(client, flow, load, salt=record.run_id)
                    for flow in load.flows
                }
            except TritonStreamError as error:
                raise ServeError(
                    f"nothing was sent yet, the model could not be asked: {error}",
                    "see what runs: trtbuild status"
                    if self._server.is_here
                    else "see whether it is up there",
                ) from error
            record.notes += [*caller_notes(callers), *trace_notes(load)]
            for caller in callers.values():
                await caller.warm()
            with _undisturbed():
                record.begun_unix_s, self._begun = time.time(), True
                self._store.begin(record)
                async with self._watched():
                    # Only now: what was done until here would make the first requests late.
                    self._begin, record.begun_unix_s = time.monotonic(), time.time()
                    self._cpu_s = time.process_time()
                    self._generator = Generator(
                        load, callers, on_sample=self._take, is_ready=client.is_ready, begin=self._begin
                    )
                    await self._generate(self._generator)

    async def _generate(self, generator: Generator) -> None:
        record = self._record
        try:
            await generator.run()
            record.state = "complete"
        except ServerDied as error:
            record.state, record.why = "server died", str(error)
        except asyncio.CancelledError:
            record.state, record.why = "interrupted", "stopped by its user"
            raise

    def _take(self, sample: RequestSample) -> None:
        self._record.requests.append(sample)
        self._new_rows.append(request_row(sample))  # here and not in the keeper's thread: see `_undisturbed`
        self._failed += sample.outcome != "ok"
        if self._failed >= COLLECT_AFTER:
            self._failed = 0
            gc.collect()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """The timeline's process and the keeper run meanwhile."""
        asked = ["--period", str(SAMPLE_EVERY_S)]
        asked += ["--metrics", self._server.metrics] if self._server.metrics else []
        asked += ["--pid", str(self._server.pid)] if self._server.pid else []
        asked += ["--here"] if self._server.is_here else []
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trtbuild.measure.timeline", *asked),
            stdout=asyncio.subprocess.PIPE, limit=1 << 22, start_new_session=True,
        )  # fmt: skip
        tasks = [asyncio.ensure_future(self._listen(child)), asyncio.ensure_future(self._keep())]
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await child.wait()

    async def _listen(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        async for line in child.stdout:
            at_s, rows = json.loads(line)
            if self._begin and at_s >= self._begin:
                self._new_timeline += [(round(at_s - self._begin, 4), *row) for row in rows]

    async def _keep(self) -> None:
        """Writes what is new, in a thread, a little at a time."""
        while True:
            await asyncio.sleep(KEEP_EVERY_S)
            if self._generator is not None:
                self._on_progress(self._generator.progress)
            with contextlib.suppress(MeasureError):  # such as a full disk: tried again, told at the end
                await asyncio.to_thread(self._store_new)

    def _store_new(self) -> None:
        rows, self._new_rows = self._new_rows, []
        timeline, self._new_timeline = self._new_timeline, []
        try:
            self._store.add(self._record, rows, timeline)
        except MeasureError:
            self._new_rows, self._new_timeline = rows + self._new_rows, timeline + self._new_timeline
            raise
        self._record.timeline += timeline

    def finish(self) -> None:
        """Whatever happened: the record gets its end."""
        if not self._begun:
            return
        record, generator = self._record, self._generator
        if record.state == "running":
            record.state, record.why = "interrupted", "stopped before its end"
        if generator is not None:
            record.duration_s = generator.now()
            record.window_s = self._window(generator)
            record.generator = self._own_side(generator)
        try:
            self._store_new()
        except MeasureError as error:
            record.state, record.why = "not kept", error.message
        record.metrics = summarise(record)
        record.notes += judged(record)
        try:
            record.changed = changed_since(self._store, record)
            self._store.finish(record)
        except MeasureError as error:
            record.state, record.why = "not kept", error.message

    def _window(self, generator: Generator) -> tuple[float, float]:
        """From the warm-up's end to the time's; of a load that is over before, to its last answer."""
        record, load = self._record, self._load
        end_s = min(generator.sending_ended_s or record.duration_s, record.duration_s)
        if record.complete and end_s < load.duration_s:
            end_s = max([end_s, *(one.end_s for one in record.requests if one.outcome == "ok" and one.end_s)])
        return min(load.warmup_s, end_s), end_s

    def _own_side(self, generator: Generator) -> dict[str, float]:
        late = [one.send_error_s for one in self._record.measured() if one.send_error_s is not None]
        return {
            "cpu_share": (time.process_time() - self._cpu_s) / max(self._record.duration_s, 1e-9),
            "send_error_max_s": max(late, default=0.0),
            "sent": len(late),
            "sent_late": sum(one > LATE_S for one in late),
            "loop_lag_max_s": generator.lag_max_s,
        }


@contextlib.contextmanager
def _undisturbed() -> Any:
    """No pauses of this process: threads change quickly, and garbage is not looked for.

    With 2,000 streams open a collection takes up to 70 ms. A request that ends well leaves no cycle behind;
    one that fails does, see `COLLECT_AFTER`.
    """
    interval_s, collects = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        sys.setswitchinterval(interval_s)
