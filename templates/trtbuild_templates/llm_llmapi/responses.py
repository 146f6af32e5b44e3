"""What the LLM API gives of one prompt, as responses with the compiled engine's tensors."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from .engine import LlmEngine
from .jobs import Job
from .words import StopSequences

Array = npt.NDArray[Any]


class Progress:
    """One prompt while it runs. Several sequences of a prompt each have responses of their own."""

    def __init__(self, job: Job, names: frozenset[str], engine: LlmEngine) -> None:
        self._job = job
        self._names = names
        self._engine = engine
        self._stops = StopSequences(job.stop_words)
        self._sent: dict[int, int] = {}  # sequence → its ids that were sent
        self._ended: set[int] = set()

    async def responses(self) -> AsyncGenerator[tuple[list[Any], bool], None]:
        """Yields the tensors of each response, and whether it is the prompt's last one.

        A prompt that is left early is aborted in the engine.
        """
        result = self._engine.generate(self._job)
        finished = False
        try:
            async for output in result:
                finished = bool(output.finished)
                if not (self._job.streaming or finished or self._has_stopped(output)):
                    continue
                sequences = [part for part in output.outputs if part.index not in self._ended]
                for place, part in enumerate(sequences):
                    ids, done = self._new_ids(part, finished)
                    if done:
                        self._ended.add(part.index)
                    last = place == len(sequences) - 1 and (
                        finished or len(self._ended) == len(output.outputs)
                    )
                    if ids or done or last:
                        yield self._tensors(part, ids, final=done or last), last
                    if last:
                        return
        finally:
            if not finished:
                result.abort()

    def _has_stopped(self, output: Any) -> bool:
        """Whether all sequences have come to one of the stop words that are looked for here."""
        if not self._job.stop_words:
            return False
        return all(self._stops.length_until_stop(list(part.token_ids), 0) for part in output.outputs)

    def _new_ids(self, part: Any, finished: bool) -> tuple[list[int], bool]:
        """Ids since the last response of a sequence, and whether it has ended."""
        ids = list(part.token_ids)
        seen = self._sent.get(part.index, 0)
        stop = self._stops.length_until_stop(ids, seen)
        if stop is not None:
            ids = ids[:stop]
        self._sent[part.index] = len(ids)
        return ids[seen:], stop is not None or finished or part.finish_reason is not None

    def _tensors(self, part: Any, ids: list[int], *, final: bool) -> list[Any]:
        job = self._job
        shown = [*job.ids, *ids] if job.whole and not job.streaming else ids
        values: dict[str, Array] = {
            "output_ids": np.array([[shown]], dtype=np.int32).reshape(1, 1, -1),
            "sequence_length": np.array([[len(shown)]], dtype=np.int32),
            "batch_index": np.array([[job.row]], dtype=np.int32),
            "sequence_index": np.array([[part.index]], dtype=np.int32),
        }
        if job.count_input:
            values["num_input_tokens"] = np.array([[len(job.ids)]], dtype=np.int32)
        if job.count_output:
            values["num_output_tokens"] = np.array([[len(ids)]], dtype=np.int32)
        if job.log_probs:
            values |= _log_probs(part, self._sent[part.index] - len(ids), len(ids))
        metrics = getattr(part, "request_perf_metrics", None)
        if final and job.perf_metrics and metrics is not None:
            values |= _perf_metrics(metrics)
        return [pb_utils.Tensor(name, value) for name, value in values.items() if name in self._names]


def _log_probs(part: Any, start: int, count: int) -> dict[str, Array]:
    chosen = [
        _chosen(entry, token)
        for entry, token in zip(part.logprobs[start : start + count], part.token_ids[start:])  # noqa: B905
    ]
    values = {"output_log_probs": np.array([[chosen]], dtype=np.float32).reshape(1, 1, -1)}
    if part.cumulative_logprob is not None:
        values["cum_log_probs"] = np.array([[part.cumulative_logprob]], dtype=np.float32)
    return values


def _chosen(entry: Any, token: int) -> float:
    """Releases give a number a token, or token → object with ``logprob``."""
    return float(entry[token].logprob) if isinstance(entry, dict) else float(entry)


def _perf_metrics(metrics: Any) -> dict[str, Array]:
    cache, timing = metrics.kv_cache_metrics, metrics.timing_metrics
    whole = {
        "kv_cache_alloc_new_blocks": cache.num_new_allocated_blocks,
        "kv_cache_reused_blocks": cache.num_reused_blocks,
        "kv_cache_alloc_total_blocks": cache.num_total_allocated_blocks,
    }
    values: dict[str, Array] = {name: np.array([[value]], dtype=np.int32) for name, value in whole.items()}
    for moment in ("arrival_time", "first_scheduled_time", "first_token_time", "last_token_time"):
        nanoseconds = round(getattr(timing, moment).total_seconds() * 1e9)
        values[f"{moment}_ns"] = np.array([[nanoseconds]], dtype=np.int64)
    return values
