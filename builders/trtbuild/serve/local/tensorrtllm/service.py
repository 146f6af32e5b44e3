"""The model that Triton calls, and the threads behind it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from trtbuild_templates.faults import told
else:
    from .faults import told

from .answers import Answer, Tensors, merged, send_error
from .config import read_settings
from .gauges import Exporter
from .inputs import check_parameters
from .jobs import Cancel, Event, Finish, Gauges, RequestRefused
from .limits import LoadRefused
from .link import Link
from .open_requests import OpenRequests
from .parse import plan_request
from .shutdown import Shutdown

# One is_cancelled call is a round trip to the server (77 us). So few requests a tick are asked, in turn, that
# this costs about 3 % of a core at a period of 10 ms; those without a token are among them.
CANCEL_CHECKS_PER_TICK = 4
# Of an engine that died, in RESTART_WINDOW_S. Then the stub ends: Triton would go on calling the model ready,
# while whoever watches the server sees a process that is gone, and starts it again or says so.
RESTARTS = 3
RESTART_WINDOW_S = 600.0
_STARTS_AGAIN = "the engine failed and is being started again; try again in a moment"


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
        self._open = OpenRequests()
        self._tensors = Tensors(pb_utils, self._settings.batched)
        self._exporter = Exporter(pb_utils, self._name, args["model_version"], self._settings.engine.limits)
        self._down = ""  # why the engine cannot be used now
        self._died_s: list[float] = []
        self._shutdown = Shutdown(os.environ)
        self._stopping = threading.Event()
        self._work = threading.Event()  # there may be something for the keeper
        self._link = self._start()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()

    def _start(self) -> Link:
        return Link(self._settings.engine, self._on_progress, self._on_end)

    def execute(self, requests: list[Any]) -> None:
        """Hands requests to the engine; each is refused, answered or cancelled on its own."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._accept(request, sender)
            except RequestRefused as refusal:
                send_error(pb_utils, sender, str(refusal), "INVALID_ARG")
            except Exception as error:
                send_error(pb_utils, sender, told(f"{self._name} failed", error, pb_utils))

    def _accept(self, request: Any, sender: Any) -> None:
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        request_id = request.request_id()
        if "stop" in tensors and tensors["stop"].any():
            self._stop(request_id)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        if self._down:
            send_error(pb_utils, sender, f"{self._name}: {self._down}", "UNAVAILABLE")
            return
        check_parameters(request.parameters())
        plan = plan_request(tensors, self._settings, lambda: next(self._keys))
        answer = Answer(pb_utils, sender, plan, request.requested_output_names(), self._tensors, request_id)
        self._open.add(answer)
        self._work.set()
        try:
            for job in plan.jobs:
                self._link.send(job)
        except OSError:  # it died just now; _on_end may or may not have seen this request
            answer.fail(f"{self._name}: the engine failed")
            self._open.remove(answer)

    def _stop(self, request_id: str) -> None:
        """As NVIDIA's backend, an id that is not (or no longer) known is no error."""
        if not request_id:
            raise RequestRefused("Trying to stop a request but request ID is not provided")
        for answer in self._open.named(request_id):
            self._cancel(answer)

    def _cancel(self, answer: Answer) -> None:
        with contextlib.suppress(OSError):  # a dead engine has ended all requests
            for key in answer.keys:
                self._link.send(Cancel(key))

    def _on_progress(self, events: list[Event], gauges: Gauges | None) -> None:
        for event in merged(events):
            answer = self._open.owner(event.key)
            if answer is None:
                continue
            try:
                answered = answer.take(event)
            except Exception as error:  # what the server does not take ends this request alone
                pb_utils.Logger.log_error(f"{self._name}: a response was not sent: {error}")
                answered = True
            if answered:
                self._open.remove(answer)
                if event.finish in (None, Finish.ERROR):  # jobs that nobody listens to any more
                    self._cancel(answer)
        if gauges is not None:
            self._exporter.update(gauges)

    def _on_end(self, reason: str) -> None:
        """The worker died: tells everybody who waits; the keeper starts another."""
        self._down = _STARTS_AGAIN
        message = told(f"{self._name}: the engine failed", reason, pb_utils)
        for answer in self._open.all():
            answer.fail(message)
            self._open.remove(answer)
        self._work.set()

    def _keep(self) -> None:
        turn = 0
        while not self._stopping.wait(self._settings.cancellation_period_s):
            self._work.wait()
            self._work.clear()
            if self._down:
                self._restart()
            turn = self._look_after(turn)

    def _look_after(self, turn: int) -> int:
        """Asks some open requests, those after ``turn``, whether their client left; returns the next turn.

        A function of its own: a thread that waits must hold no answer, for Triton does not unload the model
        while one is held.
        """
        answers = self._open.all()
        if answers:
            self._work.set()
        if answers and self._shutdown.begun():
            for answer in answers:
                answer.abandon("the server is shutting down")
                self._cancel(answer)
        for _ in range(min(CANCEL_CHECKS_PER_TICK, len(answers))):
            turn += 1
            answer = answers[turn % len(answers)]
            if answer.client_left():
                self._cancel(answer)
        return turn

    def _restart(self) -> None:
        """In the keeper's thread: a worker ends with the thread that started it."""
        now_s = time.monotonic()
        self._died_s = [at_s for at_s in self._died_s if now_s - at_s < RESTART_WINDOW_S]
        if len(self._died_s) >= RESTARTS:
            pb_utils.Logger.log_error(
                f"{self._name}: the engine failed {len(self._died_s) + 1} times; giving up"
            )
            os._exit(1)
        self._died_s.append(now_s)
        self._link.close()
        try:
            self._link = self._start()
        except LoadRefused as error:
            self._down = told("the engine failed and did not start again", error, pb_utils)
            self._work.set()
        else:
            self._down = ""
            if self._link.ended:  # meanwhile; _on_end may have spoken before the line above
                self._on_end(self._link.ended)

    def finalize(self) -> None:
        """Ends what is still running; the server calls it when its own grace time is over."""
        self._stopping.set()
        self._work.set()
        self._keeper.join()
        self._link.close()
        for answer in self._open.all():
            answer.fail("the server is shutting down", "CANCELLED")
