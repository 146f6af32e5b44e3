"""Triton's entry into the backend: what it calls, and the threads behind it."""

from __future__ import annotations

import itertools
import json
import os
import threading
from typing import Any

import triton_python_backend_utils as pb_utils

from .answers import Answer, merged, send_error
from .config import read_settings
from .gauges import Exporter
from .jobs import Cancel, Event, Gauges, RequestRefused
from .link import Link
from .parse import plan_request

# One is_cancelled call is a round trip to the server (77 us). So few requests a tick are asked that this
# costs about 3 % of a core at a period of 10 ms, in turn, those without a token included.
CANCEL_CHECKS_PER_TICK = 4


class TritonPythonModel:
    """One instance of an engine model. ``execute`` returns at once; answers come from the link's thread."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Triton asks that it exists; the configuration is complete as it is generated."""
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the engine; an exception's text becomes the reason why the model is not ready."""
        self._name = args["model_name"]
        threads = int(os.environ.get("TRTBUILD_ENGINE_THREADS", "0"))
        self._settings = read_settings(json.loads(args["model_config"]), threads)
        self._keys = itertools.count(1)
        self._lock = threading.Lock()
        self._answers: dict[int, Answer] = {}  # by job
        self._ids: dict[str, list[Answer]] = {}  # by the client's request id
        self._dead = ""
        self._exporter: Exporter | None = None
        self._link = Link(self._settings.engine, self._on_progress, self._on_end)
        self._exporter = Exporter(pb_utils, self._name, args["model_version"], self._link.loaded)
        self._stopping = threading.Event()
        self._poller = threading.Thread(target=self._poll_cancellation, name="cancellation", daemon=True)
        self._poller.start()

    def execute(self, requests: list[Any]) -> None:
        """Hands requests to the engine; each is refused, answered or cancelled on its own."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._accept(request, sender)
            except RequestRefused as refusal:
                send_error(pb_utils, sender, str(refusal), refused=True)
            except Exception as error:
                send_error(pb_utils, sender, f"{self._name}: {type(error).__name__}: {error}")

    def _accept(self, request: Any, sender: Any) -> None:
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if "stop" in tensors and tensors["stop"].any():
            self._stop(request.request_id())
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        plan = plan_request(tensors, self._settings, lambda: next(self._keys))
        answer = Answer(pb_utils, sender, plan, request.requested_output_names(), self._settings.batched)
        with self._lock:
            if self._dead:
                raise RuntimeError(self._dead)
            self._answers.update(dict.fromkeys(answer.open_jobs, answer))
            if request.request_id():
                self._ids.setdefault(request.request_id(), []).append(answer)
        for job in plan.jobs:
            self._link.send(job)

    def _stop(self, request_id: str) -> None:
        if not request_id:
            raise RequestRefused("Trying to stop a request but request ID is not provided")
        with self._lock:
            keys = [key for answer in self._ids.get(request_id, ()) for key in answer.open_jobs]
        self._cancel(keys)

    def _cancel(self, keys: list[int]) -> None:
        for key in keys:
            self._link.send(Cancel(key))

    def _on_progress(self, events: list[Event], gauges: Gauges | None) -> None:
        for event in merged(events):
            answer = self._answers.get(event.key)
            if answer is None:
                continue
            if answer.take(event):
                self._forget(answer)
            elif event.finish is not None:
                self._answers.pop(event.key, None)
        if gauges is not None and self._exporter is not None:
            self._exporter.update(gauges)

    def _forget(self, answer: Answer) -> None:
        with self._lock:
            for key in [key for key, owner in self._answers.items() if owner is answer]:
                del self._answers[key]
            for request_id in [name for name, owners in self._ids.items() if answer in owners]:
                self._ids[request_id].remove(answer)
                if not self._ids[request_id]:
                    del self._ids[request_id]

    def _on_end(self, reason: str) -> None:
        with self._lock:
            self._dead = reason
            answers = set(self._answers.values())
        for answer in answers:
            answer.fail(reason)
            self._forget(answer)

    def _poll_cancellation(self) -> None:
        turn = 0
        while not self._stopping.wait(self._settings.cancellation_period_s):
            with self._lock:
                answers = list(dict.fromkeys(self._answers.values()))
            for _ in range(min(CANCEL_CHECKS_PER_TICK, len(answers))):
                turn += 1
                answer = answers[turn % len(answers)]
                if answer.is_cancelled():
                    self._cancel(list(answer.open_jobs))

    def finalize(self) -> None:
        """Ends what is still running; the server calls it when its own grace time is over."""
        self._stopping.set()
        self._poller.join()
        self._link.close()
        with self._lock:
            answers = set(self._answers.values())
        for answer in answers:
            answer.fail("the server is shutting down", cancelled=True)
