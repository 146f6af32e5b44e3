"""Who may enter the engine: ``guaranteed_no_evict``, first in, first out.

A job enters when the blocks that it can ever need are free beside what the jobs in the engine can ever need,
so that no sequence is preempted and none ends for want of memory. Blocks that prefix reuse shares are counted
for each job that uses them: that admits less than could fit, never more.

OpenVINO GenAI's sampler has one random generator for all requests (2026.4.1), so a draw depends on who else
draws. A job with a seed of its own therefore runs beside no other that draws; greedy ones do not count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from .jobs import Job, RequestRefused
from .limits import Limits


class Admission:
    """The waiting queue and the reservations of jobs that are in the engine."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[Job] = deque()
        self._reserved: dict[int, tuple[int, int]] = {}
        self._drawing: dict[int, bool] = {}  # jobs in the engine that draw: whether by a seed of their own
        self._blocks = 0
        self._sequences = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def offer(self, job: Job) -> None:
        """Takes a job into the queue.

        Raises:
            RequestRefused: when the queue is full (the message is TensorRT-LLM's, executorImpl.cpp).
        """
        limit = self._limits.max_queue_size
        if limit and len(self._waiting) >= limit:
            raise RequestRefused(f"Maximum queue size of {limit} has been reached, please try again later")
        self._waiting.append(job)

    def _fits(self, job: Job) -> bool:
        return (
            self._blocks + self._limits.blocks(job) <= self._limits.pool_blocks
            and self._sequences + job.sampling.beam_width <= self._limits.max_sequences
            and not self._disturbs(job)
        )

    def _disturbs(self, job: Job) -> bool:
        """Whether the job's draws and those of a job in the engine would change each other."""
        if job.sampling.seeded:
            return bool(self._drawing)
        return job.sampling.draws and any(self._drawing.values())

    def admit(self) -> Iterator[Job]:
        """Jobs that enter now, oldest first. The first that does not fit holds back those behind it."""
        while self._waiting and self._fits(self._waiting[0]):
            job = self._waiting.popleft()
            held = (self._limits.blocks(job), job.sampling.beam_width)
            self._reserved[job.key] = held
            if job.sampling.draws:
                self._drawing[job.key] = job.sampling.seeded
            self._blocks += held[0]
            self._sequences += held[1]
            yield job

    def withdraw(self, key: int) -> Job | None:
        """Takes a job out of the queue; None when it does not wait (any more)."""
        for job in self._waiting:
            if job.key == key:
                self._waiting.remove(job)
                return job
        return None

    def release(self, key: int) -> None:
        """Returns what an admitted job had reserved; to be called when the engine has freed its blocks."""
        blocks, sequences = self._reserved.pop(key)
        self._drawing.pop(key, None)
        self._blocks -= blocks
        self._sequences -= sequences
