"""Responses to clients, and whether these are still there: one thread for a share of the answers.

``send`` blocks for the trip to the server process, so it is kept out of the loop thread. Tokens that arrive
meanwhile wait in their answer and go out together; none waits for others that have not arrived.

``is_cancelled`` may not be called once the final response is out (the server has freed what it asks about),
so the thread that sends is also the one that asks.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .answer import Answer, Chunk, log_probs_array
from .meter import Meter

_POLLS_AT_ONCE = 4  # 77 µs each: tokens wait no longer than that
_POLL_SHARE = 0.05  # of the thread's time, at most
_POLL_S = 77e-6


class Sender:
    """One sending thread.

    Args:
        pb_utils: Triton's Python backend module.
        poll_s: how often each answer's client is asked for, at best.
        cancelled: called for an answer whose client has gone.
    """

    def __init__(
        self, pb_utils: Any, meter: Meter, poll_s: float, cancelled: Callable[[Answer], None]
    ) -> None:
        self._pb_utils = pb_utils
        self._final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        self._meter = meter
        self._poll_s = poll_s
        self._cancelled = cancelled
        self._queue: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._live: deque[Answer] = deque()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._thread.start()

    def ready(self, answer: Answer) -> None:
        """The answer has something to send. Also called once for a new answer, to watch its client."""
        answer.queued = True
        self._queue.put(answer)

    def watch(self, answer: Answer) -> None:
        """Asks from now on whether the answer's client is still there."""
        self._live.append(answer)

    def stop(self) -> None:
        """Sends what is due and ends the thread."""
        self._queue.put(None)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        next_poll_s = time.monotonic()
        while True:
            try:
                answer = self._queue.get(timeout=self._poll_s)
            except queue.Empty:
                answer = None
                if self._stopped:
                    return
            else:
                if answer is None:
                    self._stopped = True
                    continue
            if answer is not None:
                answer.queued = False  # before it is read: what comes later queues it again
                if not answer.closed:
                    self._send(answer)
            now_s = time.monotonic()
            if now_s >= next_poll_s:
                next_poll_s = now_s + self._poll()

    def _poll(self) -> float:
        """Asks for a few clients; returns the seconds until the next few."""
        asked = 0
        for _ in range(len(self._live)):
            if asked == _POLLS_AT_ONCE:
                break
            answer = self._live.popleft()
            if answer.closed:
                continue
            asked += 1
            if not answer.complete and answer.channel.is_cancelled():
                self._cancelled(answer)
            self._live.append(answer)
        rounds = max(1, len(self._live) / _POLLS_AT_ONCE)
        return max(self._poll_s / rounds, asked * _POLL_S / _POLL_SHARE)

    def _send(self, answer: Answer) -> None:
        pb_utils = self._pb_utils
        if answer.failure is not None:
            code = getattr(pb_utils.TritonError, answer.failure.code, pb_utils.TritonError.INTERNAL)
            error = pb_utils.TritonError(answer.failure.message, code)
            self._out(answer, pb_utils.InferenceResponse(output_tensors=[], error=error), final=True)
            return
        chunk = answer.take()
        if chunk is not None:
            response = pb_utils.InferenceResponse(output_tensors=self._tensors(answer, chunk))
            self._out(answer, response, final=chunk.final)

    def _out(self, answer: Answer, response: Any, *, final: bool) -> None:
        if final:
            answer.closed = True
        self._meter.responses += 1
        try:
            answer.channel.send(response, flags=self._final if final else 0)
        except Exception as exc:
            # the client may be gone; the answer must still be closed towards Triton
            print(f"a response could not be sent: {exc}", flush=True)
            if not final:
                self._cancelled(answer)

    def _tensors(self, answer: Answer, chunk: Chunk) -> list[Any]:
        tensor, wanted = self._pb_utils.Tensor, answer.outputs
        made = []
        if "text_output" in wanted:
            texts = [text.encode("utf-8") for text in chunk.texts]
            made.append(tensor("text_output", np.array([texts], dtype=np.object_)))
        if "token_ids" in wanted:
            made.append(tensor("token_ids", np.array([chunk.ids], dtype=np.int32)))
        if chunk.log_probs and "output_log_probs" in wanted:
            made.append(tensor("output_log_probs", log_probs_array(chunk.log_probs)))
        if chunk.final:
            made += self._last_tensors(answer, len(chunk.texts))
        return made

    def _last_tensors(self, answer: Answer, texts: int) -> list[Any]:
        tensor, wanted = self._pb_utils.Tensor, answer.outputs
        made = []
        if "finish_reason" in wanted:
            reasons = np.array([[(answer.reason or "").encode()] * texts], dtype=np.object_)
            made.append(tensor("finish_reason", reasons))
        input_tokens = answer.prepared.input_tokens if answer.prepared is not None else 0
        for name, value in (("num_input_tokens", input_tokens), ("num_output_tokens", answer.output_tokens)):
            if name in wanted:
                made.append(tensor(name, np.array([[value]], dtype=np.int32)))
        made += [tensor(name, array) for name, array in answer.extras.items() if name in wanted]
        return made
