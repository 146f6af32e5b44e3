"""The step loop's body: OpenVINO GenAI's continuous batching, with admission, stop words and cancellation."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .admission import Admission
from .grammar import GuideCheck
from .jobs import Event, Finish, Gauges, Job, RequestRefused, Times
from .limits import Limits
from .sampling import generation_config, watched_words
from .stopping import StopWatch

# After its last request ends the pipeline's own metrics stay stale until it is stepped again, and after a
# cancel they are right two steps later (2026.4.1).
IDLE_STEPS = 2


@dataclass
class _Running:
    job: Job
    handle: Any
    watch: StopWatch
    scheduled_ns: int
    first_token_ns: int = 0
    cum_log_prob: float = 0.0
    kept: list[int] = field(default_factory=list)  # not streamed: everything goes with the end
    kept_log_probs: list[float] = field(default_factory=list)


class Engine:
    """One pipeline and its queue. Not thread safe; every call is made by the thread that steps.

    Args:
        pipeline: an ``openvino_genai.ContinuousBatchingPipeline``.
        limits: of this engine; the pipeline was made with the same pool.
        guides: tries guides of guided decoding; None where that is off.
    """

    def __init__(self, pipeline: Any, limits: Limits, guides: GuideCheck | None = None) -> None:
        self._pipeline = pipeline
        self._limits = limits
        self._guides = guides
        self._admission = Admission(limits)
        self._running: dict[int, _Running] = {}
        self._leaving: list[int] = []  # the pipeline frees their blocks in its next step
        self._idle_steps_left = 0
        self._iteration = 0

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running or self._leaving or self._idle_steps_left)

    def submit(self, job: Job) -> list[Event]:
        """Queues a job, or ends it with an error if it is refused."""
        try:
            self._limits.check_fits(job)
            if self._guides is not None and job.sampling.guide_type:
                self._guides.check(job.sampling)
            self._admission.offer(job)
        except RequestRefused as refusal:
            return [Event(job.key, [], Finish.ERROR, message=str(refusal))]
        return self._admit()

    def _admit(self) -> list[Event]:
        failed = []
        for job in self._admission.admit():
            try:
                handle = self._add(job)
            except Exception as error:  # whatever the pipeline refuses concerns this job only
                self._admission.release(job.key)
                failed.append(
                    Event(job.key, [], Finish.ERROR, message=f"the engine refused the request: {error}")
                )
                continue
            self._running[job.key] = _Running(job, handle, StopWatch(watched_words(job)), time.monotonic_ns())
        return failed

    def _add(self, job: Job) -> Any:
        import openvino

        ids = openvino.Tensor(np.ascontiguousarray(job.prompt, dtype=np.int64).reshape(1, -1))
        return self._pipeline.add_request(job.key, ids, generation_config(job))

    def cancel(self, key: int) -> list[Event]:
        """Ends a job; its blocks are free after the next step. Unknown keys are jobs that ended meanwhile."""
        if self._admission.withdraw(key):
            return [Event(key, [[]], Finish.CANCELLED)]
        running = self._running.get(key)
        if running is None:
            return []
        running.handle.cancel()
        self._leave(key)
        return [self._end(running, running.kept, Finish.CANCELLED)]

    def step(self) -> list[Event]:
        """One iteration of the pipeline; returns what it made, and admits who fits then."""
        worked = bool(self._running or self._leaving)
        self._pipeline.step()
        self._iteration += 1
        now_ns = time.monotonic_ns()
        for key in self._leaving:
            self._admission.release(key)
        self._leaving.clear()
        events = []
        for running in list(self._running.values()):
            event = self._read(running, now_ns) if running.handle.can_read() else self._check(running)
            if event is not None:
                events.append(event)
        events += self._admit()
        self._idle_steps_left = IDLE_STEPS if worked else max(0, self._idle_steps_left - 1)
        return events

    def _leave(self, key: int) -> None:
        del self._running[key]
        self._leaving.append(key)

    def _check(self, running: _Running) -> Event | None:
        """A job without news: still computing, unless the pipeline gave it up."""
        if running.handle.get_status().name != "IGNORED":
            return None
        key = running.job.key
        del self._running[key]
        self._admission.release(key)
        return Event(key, [], Finish.ERROR, message="the engine ran out of KV blocks and dropped the request")

    def _read(self, running: _Running, now_ns: int) -> Event | None:
        if running.job.sampling.beam_width > 1:
            return self._read_beams(running, now_ns)
        output = next(iter(running.handle.read().values()), None)
        if output is None:
            return self._check(running)
        ids, log_probs = output.generated_ids, output.generated_log_probs
        running.first_token_ns = running.first_token_ns or now_ns
        finish = _finish(output.finish_reason)
        if running.watch:
            taken = running.watch.feed(ids)
            if taken is not None:
                ids, log_probs, finish = ids[:taken], log_probs[:taken], Finish.STOP
        if running.job.log_probs:
            running.cum_log_prob += sum(log_probs)
            running.kept_log_probs += log_probs
        running.kept += ids
        if finish is not None:
            self._finished(running)
            return self._end(running, running.kept, finish, now_ns)
        return self._streamed(running) if running.job.streaming else None

    def _finished(self, running: _Running) -> None:
        """Blocks of a sequence that ended by itself are free already; one that we end needs a step."""
        key = running.job.key
        if running.handle.get_status().name == "FINISHED":
            del self._running[key]
            self._admission.release(key)
        else:
            running.handle.stop()
            self._leave(key)

    def _streamed(self, running: _Running) -> Event:
        ids, running.kept = running.kept, []
        if not running.job.log_probs:
            return Event(running.job.key, [ids])
        log_probs, running.kept_log_probs = running.kept_log_probs, []
        return Event(running.job.key, [ids], None, [log_probs], [running.cum_log_prob])

    def _end(self, running: _Running, ids: list[int], finish: str, now_ns: int = 0) -> Event:
        job = running.job
        stamps = Times(job.arrival_time_ns, running.scheduled_ns, running.first_token_ns, now_ns)
        times = stamps if now_ns else None  # a cancelled job has no last token of its own accord
        if not job.log_probs:
            return Event(job.key, [ids], finish, times=times)
        log_probs = running.kept_log_probs[len(running.kept_log_probs) - len(ids) :]
        return Event(job.key, [ids], finish, [log_probs], [running.cum_log_prob], times)

    def _read_beams(self, running: _Running, now_ns: int) -> Event | None:
        """A beam search is read once, when it has ended; the best beam comes first."""
        outputs = sorted(running.handle.read().values(), key=lambda output: -output.score)
        running.first_token_ns = now_ns
        self._finished(running)
        outputs = outputs[: running.job.sampling.beams_returned]
        cut = [_cut_at_word(running.job, list(output.generated_ids)) for output in outputs]
        reasons = {_finish(output.finish_reason) for output in outputs}
        finish = Finish.LENGTH if reasons == {Finish.LENGTH} else Finish.STOP
        times = Times(running.job.arrival_time_ns, running.scheduled_ns, now_ns, now_ns)
        if not running.job.log_probs:
            return Event(running.job.key, cut, finish, times=times)
        log_probs = [
            list(output.generated_log_probs)[: len(ids)] for output, ids in zip(outputs, cut, strict=True)
        ]
        return Event(running.job.key, cut, finish, log_probs, [sum(row) for row in log_probs], times)

    def gauges(self) -> Gauges:
        """Counters after the last step; the pipeline reports the pool as a percentage."""
        metrics = self._pipeline.get_metrics()
        context = sum(1 for running in self._running.values() if not running.first_token_ns)
        return Gauges(
            timestamp_s=time.time(),
            iteration=self._iteration,
            active=len(self._running) + self._admission.waiting,
            scheduled=metrics.scheduled_requests,
            context=context,
            generation=len(self._running) - context,
            waiting=self._admission.waiting,
            used_blocks=round(metrics.cache_usage / 100 * self._limits.pool_blocks),
        )


def _finish(reason: Any) -> str | None:
    return {"STOP": Finish.STOP, "LENGTH": Finish.LENGTH}.get(reason.name)


def _cut_at_word(job: Job, ids: list[int]) -> list[int]:
    taken = StopWatch(watched_words(job)).feed(ids)
    return ids if taken is None else ids[:taken]
