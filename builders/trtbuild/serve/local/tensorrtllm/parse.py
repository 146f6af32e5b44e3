"""A Triton request as jobs for the engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .config import ModelSettings
from .inputs import Row, Tensors, check_inputs
from .jobs import Job, RequestRefused
from .limits import Limits
from .sampling_inputs import read_sampling
from .stopping import Word, split_words


@dataclass(frozen=True)
class Wanted:
    """What a request wants to see of its answer."""

    exclude_input: bool
    times: bool
    num_input_tokens: bool
    num_output_tokens: bool


@dataclass(frozen=True)
class RequestPlan:
    """``jobs[i]`` answers row ``rows[i][0]`` of the batch as sequence ``rows[i][1]``."""

    jobs: tuple[Job, ...]
    rows: tuple[tuple[int, int], ...]
    batch_size: int
    wanted: Wanted


def plan_request(tensors: Tensors, settings: ModelSettings, next_key: Callable[[], int]) -> RequestPlan:
    """Checks a request and splits it into jobs.

    Args:
        tensors: inputs by name, with the batch dimension when ``settings.batched``.
        next_key: gives a new job's key at each call.

    Raises:
        RequestRefused: for anything that is malformed or cannot be honoured.
    """
    check_inputs(tensors)
    if "input_ids" not in tensors:
        raise RequestRefused("input_ids is missing")
    if not settings.batched:
        tensors = {name: value[None] for name, value in tensors.items()}
    shape = tensors["input_ids"].shape
    if len(shape) != 2:
        raise RequestRefused(f"input_ids has {len(shape)} dimensions; [batch, tokens] is expected")
    rows = [Row(tensors, number, shape[0]) for number in range(shape[0])]
    made = [(number, _row_jobs(row, settings, next_key)) for number, row in enumerate(rows)]
    return RequestPlan(
        jobs=tuple(job for _, jobs in made for job in jobs),
        rows=tuple((number, sequence) for number, jobs in made for sequence in range(len(jobs))),
        batch_size=shape[0],
        wanted=Wanted(
            exclude_input=bool(rows[0].scalar("exclude_input_in_output", settings.exclude_input)),
            times=bool(rows[0].scalar("return_perf_metrics", False)),
            num_input_tokens=bool(rows[0].scalar("return_num_input_tokens", False)),
            num_output_tokens=bool(rows[0].scalar("return_num_output_tokens", False)),
        ),
    )


def _row_jobs(row: Row, settings: ModelSettings, next_key: Callable[[], int]) -> list[Job]:
    """One job, or one for each of several sampled sequences, which differ by their seeds."""
    limits = settings.engine.limits
    prompt = _prompt(row, limits)
    new_tokens = limits.checked_new_tokens(
        prompt_tokens=len(prompt), new_tokens=row.scalar("request_output_len", 0)
    )
    sequences, sampling = read_sampling(row, settings)
    job = Job(
        key=0,
        prompt=prompt,
        max_new_tokens=new_tokens,
        streaming=bool(row.scalar("streaming", False)),
        end_ids=_end_ids(row, limits),
        stop_words=_stop_words(row),
        sampling=sampling,
        log_probs=bool(row.scalar("return_log_probs", False)),
        arrival_time_ns=time.monotonic_ns(),
    )
    if job.streaming and sampling.beam_width > 1:
        raise RequestRefused("streaming needs beam_width 1: a beam search knows its text only at the end")
    limits.check_fits(job)
    seeds = [(sampling.seed + number) % 2**64 for number in range(sequences)]
    return [replace(job, key=next_key(), sampling=replace(sampling, seed=seed)) for seed in seeds]


def _prompt(row: Row, limits: Limits) -> NDArray[np.int32]:
    ids = row.array("input_ids")
    tokens: NDArray[Any] = np.empty(0, np.int32) if ids is None else ids.reshape(-1)
    length = row.scalar("input_lengths", len(tokens))
    if not 0 <= length <= len(tokens):
        raise RequestRefused(f"input_lengths is {length}, and input_ids holds {len(tokens)} tokens")
    prompt = np.ascontiguousarray(tokens[:length], dtype=np.int32)
    for token in (int(prompt.min()), int(prompt.max())) if length else ():
        limits.check_token("input_ids holds", token)
    return prompt


def _end_ids(row: Row, limits: Limits) -> tuple[int, ...]:
    """The end id; -1 means none, as TensorRT-LLM takes it."""
    end_id = row.scalar("end_id", -1)
    if end_id == -1:
        return ()
    limits.check_token("end_id is", end_id)
    return (end_id,)


def _stop_words(row: Row) -> tuple[Word, ...]:
    value = row.array("stop_words_list")
    if value is None:
        return ()
    if value.ndim != 2 or value.shape[0] != 2:
        raise RequestRefused(
            f"stop_words_list has shape {list(value.shape)}; [2, n] is expected: ids and offsets"
        )
    try:
        return split_words(value[0].tolist(), value[1].tolist())
    except ValueError as error:
        raise RequestRefused(f"stop_words_list: {error}") from error
