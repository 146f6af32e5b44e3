"""Responses to clients, and whether these are still there. Everything here runs in the loop's thread.

``send`` blocks for the trip to the server process. After each turn of sending the loop reads what has arrived
meanwhile: tokens that wait in their answer go out together, and none waits for others that have not arrived.

``is_cancelled`` may not be called once the final response is out (the server has freed what it asks about).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np

from .answer import Answer, Chunk, log_probs_array
from .settings import Settings

_TURN_S = 0.0007  # of sending before the loop reads again; a response takes 0.2 ms where the CPU is free
_POLL_SHARE = 0.03  # of the loop's time, at most: is_cancelled takes 77 µs, more where the server is busy


class Sender:
    """Sends for all answers.

    Args:
        pb_utils: Triton's Python backend module.
        gone: called for an answer whose client has gone.
    """

    def __init__(self, pb_utils: Any, settings: Settings, gone: Callable[[Answer], None]) -> None:
        self._pb_utils = pb_utils
        self._final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        self._poll_s = settings.cancel_poll_ms / 1000
        self._coalesce = settings.coalesce
        self._gone = gone
        self._due: deque[Answer] = deque()
        self._fresh: deque[Answer] = deque()  # those that have sent nothing yet
        self._live: deque[Answer] = deque()
        self._polling = False
        self._yielded = False

    def ready(self, answer: Answer) -> None:
        """The answer has something to send. A first token goes before others' later ones."""
        if not answer.queued:
            answer.queued = True
            answer.due_s = time.perf_counter()
            if not self._due and not self._fresh:
                asyncio.get_running_loop().call_soon(self._turn)
            (self._due if answer.begun else self._fresh).append(answer)

    def watch(self, answer: Answer) -> None:
        """Asks from now on whether the answer's client is still there."""
        self._live.append(answer)
        if not self._polling:
            self._polling = True
            asyncio.get_running_loop().call_later(self._poll_s, self._poll)

    def flush(self) -> None:
        """Sends all that is due."""
        while self._fresh or self._due:
            self._send((self._fresh or self._due).popleft())

    def _turn(self) -> None:
        if not self._fresh and not self._yielded:
            # Where every core is busy, engine and server go first, and what they bring is read before this
            # sends: more tokens go out together, which costs all three less. Elsewhere it takes 1 µs.
            self._yielded = True
            os.sched_yield()
            asyncio.get_running_loop().call_soon(self._turn)
            return
        self._yielded = False
        until_s = time.perf_counter() + _TURN_S
        while self._fresh or self._due:
            self._send((self._fresh or self._due).popleft())
            if time.perf_counter() >= until_s:
                break
        if self._fresh or self._due:
            asyncio.get_running_loop().call_soon(self._turn)

    def _poll(self) -> None:
        """Asks for the client of the answer that was asked for longest ago."""
        live, cost_s = self._live, 0.0
        while live:
            answer = live.popleft()
            if answer.closed:
                continue
            live.append(answer)
            begun_s = time.perf_counter()
            if not answer.complete and answer.channel.is_cancelled():
                self._gone(answer)
            cost_s = time.perf_counter() - begun_s
            break
        if live:
            wait_s = max(self._poll_s / len(live), cost_s / _POLL_SHARE)
            asyncio.get_running_loop().call_later(wait_s, self._poll)
        else:
            self._polling = False

    def _send(self, answer: Answer) -> None:
        answer.queued = False
        if answer.closed:
            return
        pb_utils = self._pb_utils
        if answer.failure is not None:
            code = getattr(pb_utils.TritonError, answer.failure.code, pb_utils.TritonError.INTERNAL)
            error = pb_utils.TritonError(answer.failure.text(pb_utils), code)
            self._out(answer, pb_utils.InferenceResponse(output_tensors=[], error=error), final=True)
            return
        chunk = answer.take(everything=self._coalesce)
        if chunk is not None:
            answer.totals.held.add(time.perf_counter() - answer.due_s)
            response = pb_utils.InferenceResponse(output_tensors=self._tensors(answer, chunk))
            self._out(answer, response, final=chunk.reasons is not None)
            if answer.has_more:
                self.ready(answer)

    def _out(self, answer: Answer, response: Any, *, final: bool) -> None:
        answer.begun, answer.closed = True, final
        answer.totals.responses += 1
        try:
            answer.channel.send(response, flags=self._final if final else 0)
        except Exception as exc:  # a fault of one client must not end the others' answers
            if final:  # Triton's sender is closed by the attempt
                self._pb_utils.Logger.log_error(f"a last response could not be sent: {exc}")
            else:
                answer.lost(exc)
                self._gone(answer)

    def _tensors(self, answer: Answer, chunk: Chunk) -> list[Any]:
        tensor, wanted = self._pb_utils.Tensor, answer.outputs
        made = []
        if "text_output" in wanted:
            texts = [text.encode("utf-8") for text in chunk.texts]
            for text in texts:
                answer.text_crc32 = crc32(text, answer.text_crc32)
            made.append(tensor("text_output", np.array([texts], dtype=np.object_)))
        if "token_ids" in wanted:
            made.append(tensor("token_ids", np.array([chunk.ids], dtype=np.int32)))
        if chunk.log_probs and "output_log_probs" in wanted:
            made.append(tensor("output_log_probs", log_probs_array(chunk.log_probs)))
        if chunk.reasons is not None:
            made += self._last_tensors(answer, chunk.reasons)
        return made

    def _last_tensors(self, answer: Answer, reasons: list[str]) -> list[Any]:
        tensor, wanted = self._pb_utils.Tensor, answer.outputs
        made = []
        if "finish_reason" in wanted:
            words = np.array([[reason.encode() for reason in reasons]], dtype=np.object_)
            made.append(tensor("finish_reason", words))
        input_tokens = answer.prepared.input_tokens if answer.prepared is not None else 0
        for name, value in (("num_input_tokens", input_tokens), ("num_output_tokens", answer.output_tokens)):
            if name in wanted:
                made.append(tensor(name, np.array([[value]], dtype=np.int32)))
        if "text_crc32" in wanted:
            made.append(tensor("text_crc32", np.array([[answer.text_crc32]], dtype=np.uint32)))
        made += [tensor(name, array) for name, array in answer.extras.items() if name in wanted]
        return made
