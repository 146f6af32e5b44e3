"""A Triton request's tensors as jobs for the engine."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .config import ModelSettings
from .contract import INPUT_BY_NAME
from .grammar import check_guide_type
from .jobs import Job, RequestRefused, Sampling
from .stopping import split_words

Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Wanted:
    """What a request wants to see of its answer."""

    exclude_input: bool
    log_probs: bool
    times: bool
    num_input_tokens: bool
    num_output_tokens: bool


@dataclass(frozen=True)
class Plan:
    """``jobs[i]`` answers row ``rows[i][0]`` of the batch as sequence ``rows[i][1]``."""

    jobs: tuple[Job, ...]
    rows: tuple[tuple[int, int], ...]
    batch_size: int
    wanted: Wanted


class _Row:
    """The inputs of one row of a batch, by name; a missing input has its default."""

    def __init__(self, tensors: Tensors, row: int, batch_size: int) -> None:
        self._tensors = tensors
        self._row = row
        self._batch_size = batch_size

    def array(self, name: str) -> NDArray[Any] | None:
        value = self._tensors.get(name)
        if value is None or value.size == 0:
            return None
        if self._batch_size == 1 and value.shape[0] != 1:
            return value
        if value.shape[0] != self._batch_size:
            raise RequestRefused(
                f"{name} has {value.shape[0]} rows and input_ids {self._batch_size}; each input needs as many"
            )
        return np.asarray(value[self._row], value.dtype)

    def scalar(self, name: str, default: Any) -> Any:
        value = self.array(name)
        if value is None:
            return default
        if value.size != 1:
            raise RequestRefused(f"{name} has {value.size} values; it takes one")
        item = value.reshape(-1)[0]
        return item.item() if isinstance(item, np.generic) else item  # texts are plain bytes


def check_parameters(parameters: str) -> None:
    """Refuses what TensorRT-LLM's backend reads from a request's own parameters (a JSON object).

    ``request_type`` asks for one half of disaggregated serving.
    """
    if "request_type" in parameters:
        kind = json.loads(parameters).get("request_type", "")
        if kind not in ("", "context_and_generation"):
            raise RequestRefused(
                f"request_type {kind!r} cannot be honoured: one engine does both halves here"
            )


def plan_request(tensors: Tensors, settings: ModelSettings, next_key: Any) -> Plan:
    """Checks a request and splits it into jobs.

    Args:
        tensors: inputs by name, with the batch dimension when ``settings.batched``.
        next_key: gives a new job's key at each call.

    Raises:
        RequestRefused: for anything that is malformed or cannot be honoured.
    """
    for name, value in tensors.items():
        rule = INPUT_BY_NAME.get(name)
        if rule is None:
            raise RequestRefused(f"{name} is not an input of the tensorrtllm backend")
        rule.check(value)
    ids = tensors.get("input_ids")
    if ids is None:
        raise RequestRefused("input_ids is missing")
    if not settings.batched:
        tensors = {name: value[None] for name, value in tensors.items()}
        ids = tensors["input_ids"]
    if ids.ndim != 2:
        raise RequestRefused(f"input_ids has {ids.ndim} dimensions; [batch, tokens] is expected")
    batch_size = ids.shape[0]
    jobs: list[Job] = []
    rows: list[tuple[int, int]] = []
    first = _Row(tensors, 0, batch_size)
    for row in range(batch_size):
        for sequence, job in enumerate(_row_jobs(_Row(tensors, row, batch_size), settings, next_key)):
            jobs.append(job)
            rows.append((row, sequence))
    wanted = Wanted(
        exclude_input=bool(first.scalar("exclude_input_in_output", settings.exclude_input)),
        log_probs=bool(first.scalar("return_log_probs", False)),
        times=bool(first.scalar("return_perf_metrics", False)),
        num_input_tokens=bool(first.scalar("return_num_input_tokens", False)),
        num_output_tokens=bool(first.scalar("return_num_output_tokens", False)),
    )
    return Plan(tuple(jobs), tuple(rows), batch_size, wanted)


def _row_jobs(row: _Row, settings: ModelSettings, next_key: Any) -> list[Job]:
    """One job, or one for each of several sampled sequences, which differ by their seeds."""
    limits = settings.engine.limits
    ids = row.array("input_ids")
    tokens = np.empty(0, np.int32) if ids is None else ids.reshape(-1)
    length = row.scalar("input_lengths", len(tokens))
    if not 0 <= length <= len(tokens):
        raise RequestRefused(f"input_lengths is {length}, and input_ids holds {len(tokens)} tokens")
    prompt = np.ascontiguousarray(tokens[:length], dtype=np.int32)
    if len(prompt) and int(prompt.min()) < 0:
        raise RequestRefused(f"input_ids holds {int(prompt.min())}; token ids are not negative")
    new_tokens = limits.checked_new_tokens(
        prompt_tokens=len(prompt), new_tokens=row.scalar("request_output_len", 0)
    )
    sequences, sampling = _sampling(row, settings)
    streaming = bool(row.scalar("streaming", False))
    if streaming and sampling.beam_width > 1:
        raise RequestRefused("streaming needs beam_width 1: a beam search knows its text only at the end")
    end_id = row.scalar("end_id", -1)
    jobs = []
    for sequence in range(sequences):
        job = Job(
            key=next_key(),
            prompt=prompt,
            max_new_tokens=new_tokens,
            streaming=streaming,
            end_ids=(end_id,) if end_id >= 0 else (),
            stop_words=_stop_words(row),
            sampling=_reseeded(sampling, sequence),
            log_probs=bool(row.scalar("return_log_probs", False)),
            arrival_time_ns=time.monotonic_ns(),
        )
        limits.check_fits(job)
        jobs.append(job)
    return jobs


def _stop_words(row: _Row) -> tuple[tuple[int, ...], ...]:
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


def _reseeded(sampling: Sampling, sequence: int) -> Sampling:
    return replace(sampling, seed=(sampling.seed + sequence) % 2**64) if sequence else sampling


def _sampling(row: _Row, settings: ModelSettings) -> tuple[int, Sampling]:
    """Number of sequences and how their tokens are chosen, with TensorRT-LLM's defaults.

    Without top-k and top-p it is greedy; top_p 0 beside a top-k means no top-p (topKSamplingLayer.cu,
    samplingConfig.h).
    """
    beam_width = row.scalar("beam_width", 1)
    returned = row.scalar("num_return_sequences", 1)
    limits = settings.engine.limits
    if not 1 <= beam_width <= limits.max_beam_width:
        raise RequestRefused(
            f"Requested beam width {beam_width} is not between 1 and the engine's max_beam_width "
            f"{limits.max_beam_width}"
        )
    if returned < 1 or (beam_width > 1 and returned > beam_width):
        raise RequestRefused(
            f"num_return_sequences is {returned}; with beam_width {beam_width} it is at least 1"
            + (f" and at most {beam_width}" if beam_width > 1 else "")
        )
    top_k, top_p = row.scalar("runtime_top_k", 0), row.scalar("runtime_top_p", 0.0)
    temperature = row.scalar("temperature", 1.0)
    _in_range("runtime_top_k", top_k, 0, None)
    _in_range("runtime_top_p", top_p, 0.0, 1.0)
    _in_range("temperature", temperature, 0.0, None)
    sampling = Sampling(
        greedy=(top_k == 0 and top_p == 0.0) or top_k == 1 or temperature == 0.0,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p or 1.0,
        repetition_penalty=row.scalar("repetition_penalty", 1.0),
        presence_penalty=row.scalar("presence_penalty", 0.0),
        frequency_penalty=row.scalar("frequency_penalty", 0.0),
        min_tokens=row.scalar("min_tokens", 0),
        seed=row.scalar("seed", 0),
        beam_width=beam_width,
        beams_returned=returned
        if beam_width > 1 and row.array("num_return_sequences") is not None
        else beam_width,
        length_penalty=row.scalar("len_penalty", 1.0),
        early_stopping=bool(row.scalar("early_stopping", True)),
        guide_type=_text_input(row, "guided_decoding_guide_type"),
        guide=_text_input(row, "guided_decoding_guide"),
    )
    _check_engine_ranges(sampling)
    _check_guide(sampling, settings)
    return (1 if beam_width > 1 else returned), sampling


def _check_guide(sampling: Sampling, settings: ModelSettings) -> None:
    if not sampling.guide_type and not sampling.guide:
        return
    if not settings.engine.guided:
        raise RequestRefused("guided decoding is off; set parameter guided_decoding_backend to xgrammar")
    if sampling.beam_width > 1:
        raise RequestRefused("guided decoding needs beam_width 1")
    check_guide_type(sampling.guide_type, sampling.guide)


def _text_input(row: _Row, name: str) -> str:
    value: bytes = row.scalar(name, b"")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestRefused(f"{name} is not UTF-8: {error}") from error


def _in_range(name: str, value: float, low: float, high: float | None) -> None:
    if not value >= low or (high is not None and value > high):  # also NaN
        upper = "" if high is None else f" and at most {high}"
        raise RequestRefused(f"{name} is {value}; it must be at least {low}{upper}")


def _check_engine_ranges(sampling: Sampling) -> None:
    """Ranges of OpenVINO GenAI (generation_config.cpp, validate)."""
    _in_range("presence_penalty", sampling.presence_penalty, -2.0, 2.0)
    _in_range("frequency_penalty", sampling.frequency_penalty, -2.0, 2.0)
    _in_range("min_tokens", sampling.min_tokens, 0, None)
    if not sampling.repetition_penalty > 0:
        raise RequestRefused(f"repetition_penalty is {sampling.repetition_penalty}; it must be above 0")
    penalties = (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty)
    if sampling.beam_width > 1 and penalties != (1.0, 0.0, 0.0):
        raise RequestRefused(
            "the CPU engine has no penalties in a beam search; use beam_width 1, or neutral penalties"
        )
    if sampling.beam_width > 1 and not sampling.greedy:
        raise RequestRefused("the CPU engine's beam search does not sample; leave out top-k and top-p")
