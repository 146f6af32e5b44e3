"""Answers to Triton requests: events of their jobs as response tensors, in NVIDIA's shapes.

``output_ids`` [1, beams, n] INT32, padded with -1; ``sequence_length`` [1, beams] INT32: the ids in this
response; ``cum_log_probs`` [1, beams] and ``output_log_probs`` [1, beams, n] FP32; one value [1, 1] for the
rest. A streamed response holds the ids since the last one; any other the whole answer, after the prompt
unless ``exclude_input_in_output`` (model_instance_state.cc, fillTritonResponse). Without batching the leading
1 is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from .jobs import UNSUPPORTED, Event, Finish, Job
from .parse import RequestPlan


class Tensors:
    """Makes output tensors. A tensor costs 8 us in the stub, so those of small numbers are made once."""

    _SMALL = 64

    def __init__(self, pb_utils: Any, batched: bool) -> None:
        self._pb = pb_utils
        self._batched = batched
        self._made: dict[tuple[str, int], Any] = {}

    def array(self, name: str, value: Any) -> Any:
        """``value``: an array with the leading batch dimension."""
        return self._pb.Tensor(name, value if self._batched else value[0])

    def number(self, name: str, value: int, dtype: Any) -> Any:
        """[1, 1]."""
        if not 0 <= value < self._SMALL:
            return self.array(name, np.array([[value]], dtype))
        key = (name, value)
        if key not in self._made:
            self._made[key] = self.array(name, np.array([[value]], dtype))
        return self._made[key]


class Answer:
    """One Triton request that is being served.

    Args:
        pb_utils: the stub's ``triton_python_backend_utils``.
        sender: its response sender.
        outputs: names of the requested outputs.
        request_id: the client's own, empty if it gave none.
    """

    def __init__(
        self,
        pb_utils: Any,
        sender: Any,
        plan: RequestPlan,
        outputs: Iterable[str],
        tensors: Tensors,
        request_id: str,
    ) -> None:
        self._pb = pb_utils
        self._sender = sender
        self._plan = plan
        self._outputs = frozenset(outputs)
        self._tensors = tensors
        self.request_id = request_id
        self.keys = tuple(job.key for job in plan.jobs)
        self._jobs = {job.key: (job, row) for job, row in zip(plan.jobs, plan.rows, strict=True)}
        self._generated = dict.fromkeys(self.keys, 0)
        self._open = set(self.keys)
        self._abandoned = ""  # why nobody shall read the rest
        # The server frees a request's response factory with its final response; asking is_cancelled then, or
        # meanwhile, ends the whole server with a segmentation fault (2.51.0, ResponseFactoryIsCancelled).
        self._ending = threading.Lock()
        self._final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

    def client_left(self) -> bool:
        """Asks the server whether the client has cancelled (77 us). True once, and never after the end."""
        with self._ending:
            if not self._open or self._abandoned or not self._sender.is_cancelled():
                return False
            self._abandoned = "the client cancelled the request"
            return True

    def abandon(self, why: str) -> None:
        """Its end, when it comes, is an error with this text."""
        self._abandoned = self._abandoned or why

    def take(self, event: Event) -> bool:
        """Sends an event; returns whether the request is answered completely."""
        if event.finish == Finish.ERROR:
            self.fail(event.message)
            return True
        if self._abandoned:
            if event.finish is not None:
                self.fail(self._abandoned, "CANCELLED")
            return event.finish is not None
        job, (row, sequence) = self._jobs[event.key]
        self._generated[event.key] += sum(map(len, event.beams))
        response = self._pb.InferenceResponse(self._outputs_of(event, job, row, sequence))
        if event.finish is None:
            self._sender.send(response)
            return False
        with self._ending:
            self._open.discard(event.key)
            self._sender.send(response, flags=0 if self._open else self._final)
            return not self._open

    def fail(self, message: str, kind: ErrorKind = "INTERNAL") -> None:
        """Ends the request with an error, unless it has ended."""
        with self._ending:
            if self._open:
                self._open.clear()
                send_error(self._pb, self._sender, message, kind)

    def _outputs_of(self, event: Event, job: Job, row: int, sequence: int) -> list[Any]:
        wanted, outputs, make = self._plan.wanted, self._outputs, self._tensors
        beams = event.beams
        if not job.streaming and not wanted.exclude_input:
            beams = [job.prompt.tolist() + ids for ids in beams]
        tensors = []
        if "output_ids" in outputs:
            tensors.append(make.array("output_ids", _padded(beams, np.int32)))
        if "sequence_length" in outputs:
            tensors.append(
                make.number("sequence_length", len(beams[0]), np.int32)
                if len(beams) == 1
                else make.array("sequence_length", np.array([list(map(len, beams))], np.int32))
            )
        if event.log_probs is not None and event.cum_log_probs is not None:
            if "output_log_probs" in outputs:
                tensors.append(make.array("output_log_probs", _padded(event.log_probs, np.float32)))
            if "cum_log_probs" in outputs:
                tensors.append(make.array("cum_log_probs", np.array([event.cum_log_probs], np.float32)))
        for name, value, dtype in self._numbers(event, job, row, sequence):
            if name in outputs:
                tensors.append(make.number(name, value, dtype))
        return tensors

    def _numbers(self, event: Event, job: Job, row: int, sequence: int) -> list[tuple[str, int, Any]]:
        wanted = self._plan.wanted
        numbers: list[tuple[str, int, Any]] = [("sequence_index", sequence, np.int32)]
        if self._plan.batch_size > 1:
            numbers.append(("batch_index", row, np.int32))
        if wanted.num_input_tokens:
            numbers.append(("num_input_tokens", len(job.prompt), np.int32))
        if wanted.num_output_tokens:
            numbers.append(("num_output_tokens", self._generated[job.key], np.int32))
        if wanted.times and event.times is not None:
            numbers += [
                ("arrival_time_ns", event.times.arrival_ns, np.int64),
                ("first_scheduled_time_ns", event.times.first_scheduled_ns, np.int64),
                ("first_token_time_ns", event.times.first_token_ns, np.int64),
                ("last_token_time_ns", event.times.last_token_ns, np.int64),
            ]
        return numbers


def _padded(rows: list[list[Any]], dtype: Any) -> Any:
    """[1, rows, longest], padded with -1."""
    if len(rows) == 1:
        return np.array([rows], dtype)
    longest = max(map(len, rows), default=0)
    return np.array([[row + [-1] * (longest - len(row)) for row in rows]], dtype)


ErrorKind = Literal["INVALID_ARG", "CANCELLED", "UNAVAILABLE", "INTERNAL"]


def send_error(pb_utils: Any, sender: Any, message: str, kind: ErrorKind = "INTERNAL") -> None:
    """Answers a request with an error and the final flag."""
    # a stream gives its client no code; the front reads these
    if kind in ("UNAVAILABLE", "INVALID_ARG") and not message.endswith(UNSUPPORTED):
        message += f" [{kind}]"
    error = pb_utils.TritonError(message, getattr(pb_utils.TritonError, kind))
    response = pb_utils.InferenceResponse(error=error)
    sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def merged(events: list[Event]) -> list[Event]:
    """Events of one job become one, in order of their first; a job's end stays its last."""
    if len({event.key for event in events}) == len(events):
        return events
    by_key: dict[int, Event] = {}
    for event in events:
        earlier = by_key.get(event.key)
        by_key[event.key] = event if earlier is None else _joined(earlier, event)
    return list(by_key.values())


def _joined(first: Event, then: Event) -> Event:
    if not first.beams:
        return then
    if not then.beams:
        return then._replace(beams=first.beams, log_probs=first.log_probs, cum_log_probs=first.cum_log_probs)
    beams = [a + b for a, b in zip(first.beams, then.beams, strict=True)]
    log_probs = then.log_probs
    if first.log_probs is not None and then.log_probs is not None:
        log_probs = [a + b for a, b in zip(first.log_probs, then.log_probs, strict=True)]
    return then._replace(beams=beams, log_probs=log_probs)
