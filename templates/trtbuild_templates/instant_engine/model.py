"""An engine without a model: answers with the prompt's own tokens, at once or at a given pace.

It has the inputs and outputs of a ``tensorrt_llm`` model that a text front uses, works in steps as an
engine with in-flight batching does (one token for every live request), and takes no time for them. So what
is measured is the path around it, and what a request gets tells whether answers were mixed up.

Parameters of config.pbtxt (string values):

    step_ms     time between steps; 0: none. Default 0

Token k of an answer is the prompt's token k, around and around. An answer ends at ``request_output_len``, at
``end_id``, or at an entry of ``stop_words_list`` that is one token; the token that ends it is sent.

``random_faults`` asks for a fault, for tests: 1 an error at once, 2 an error after three tokens, 3 no answer
until it is cancelled, 4 the final flag in a message of its own, 5 an error with a traceback, 6 three tokens a
message, 7 a message whose output is padded beyond ``sequence_length``.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_CANCEL_EVERY = 8  # steps between two questions whether a request was cancelled; one costs as much as a token
_TRACEBACK = (
    'Traceback (most recent call last):\n  File "engine.py", line 1, in f\nRuntimeError: out of blocks'
)


@dataclass
class _Job:
    channel: Any
    prompt: list[int]
    limit: int
    ends: frozenset[int]
    beams: int
    streaming: bool
    fault: int
    sent: int = 0
    steps: int = 0


class TritonPythonModel:
    """Triton's entry. One thread makes the steps."""

    def initialize(self, args: dict[str, str]) -> None:
        """Starts the thread."""
        parameters = json.loads(args["model_config"]).get("parameters") or {}
        self._step_s = float(parameters.get("step_ms", {}).get("string_value", "0")) / 1000
        self._arrived: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="steps", daemon=True)
        self._thread.start()

    def execute(self, requests: Sequence[Any]) -> None:
        """Takes requests in; their answers come from the thread."""
        jobs = [_job(request) for request in requests]
        with self._changed:
            self._arrived.extend(jobs)
            self._changed.notify()

    def finalize(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        live: list[_Job] = []
        next_s = 0.0
        while True:
            with self._changed:
                while not live and not self._arrived and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return
                live += self._arrived
                self._arrived.clear()
            if self._step_s:
                now_s = time.monotonic()
                next_s = max(next_s + self._step_s, now_s)
                time.sleep(next_s - now_s)
            live = [job for job in live if self._step(job)]

    def _step(self, job: _Job) -> bool:
        """One token for one request; whether it lives on."""
        job.steps += 1
        if (job.steps % _CANCEL_EVERY == 0 or job.fault == 3) and job.channel.is_cancelled():
            error = pb_utils.TritonError("the request was cancelled", pb_utils.TritonError.CANCELLED)
            job.channel.send(pb_utils.InferenceResponse(output_tensors=[], error=error), flags=_FINAL)
            return False
        if job.fault == 3:
            return True
        if job.fault in (1, 5) or (job.fault == 2 and job.sent >= 3):
            text = _TRACEBACK if job.fault == 5 else "Encountered an error: out of blocks"
            error = pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(text))
            job.channel.send(error, flags=_FINAL)
            return False
        count = job.limit if not job.streaming else 3 if job.fault == 6 else 1
        ids: list[int] = []
        last = False
        while len(ids) < count and not last:
            ids.append(job.prompt[(job.sent + len(ids)) % len(job.prompt)])
            last = ids[-1] in job.ends or job.sent + len(ids) >= job.limit
        job.sent += len(ids)
        alone = last and job.fault == 4
        job.channel.send(_response(job, ids), flags=_FINAL if last and not alone else 0)
        if alone:
            job.channel.send(flags=_FINAL)
        return not last


def _response(job: _Job, ids: list[int]) -> Any:
    row = [*ids, 0, 0] if job.fault == 7 else ids
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor("output_ids", np.array([[row] * job.beams], dtype=np.int32)),
            pb_utils.Tensor("sequence_length", np.array([[len(ids)] * job.beams], dtype=np.int32)),
        ]
    )


def _job(request: Any) -> _Job:
    # what as_numpy gives lies in memory that is gone once execute has returned: take it out here
    tensors = {tensor.name(): tensor.as_numpy().reshape(-1).tolist() for tensor in request.inputs()}

    def one(name: str, default: int) -> int:
        return int(tensors[name][0]) if name in tensors else default

    words: npt.NDArray[Any] = np.array(tensors.get("stop_words_list", []), dtype=np.int32).reshape(2, -1)
    begins = [0, *words[1].tolist()]
    ends = [
        words[0, end - 1] for begin, end in zip(begins, words[1].tolist(), strict=False) if end - begin == 1
    ]
    return _Job(
        channel=request.get_response_sender(),
        prompt=tensors["input_ids"],
        limit=one("request_output_len", 1),
        ends=frozenset({one("end_id", -1), *map(int, ends)}),
        beams=max(one("beam_width", 1), one("num_return_sequences", 1)),
        streaming=bool(one("streaming", 0)),
        fault=one("random_faults", 0),
    )
