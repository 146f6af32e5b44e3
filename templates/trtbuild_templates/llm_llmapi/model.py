"""TensorRT-LLM's LLM API (PyTorch flow) behind the tensors of its compiled engine: ids in, ids out.

``model.yaml`` beside this file holds the arguments of ``LLM`` (written as JSON, which is YAML); its ``model``
is a folder relative to this one. Parameters of config.pbtxt (string values):

    gpu_device_ids                "," between the GPUs of an instance, ";" between instances
    cancellation_check_period_ms  how often clients of live requests are asked for
    exclude_input_in_output       what holds where a request does not say
    max_queue_size                requests beyond max_batch_size that may wait; 0: no limit

One asyncio loop in a thread serves all requests. tensorrt_llm is imported when the model is initialised,
after its GPUs were chosen: importing it opens the devices.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from trtbuild_templates.faults import told
else:
    from .faults import told

from .engine import LlmEngine
from .jobs import Busy, Job, Refused, read_jobs
from .responses import Progress

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
# A server that mpirun started hands down its job; the LLM API starts workers of its own.
_MPI_JOB = (
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_",
    "OMPI_FIRST_RANKS",
    "OMPI_APP_CTX_",
    "OMPI_MCA_orte_",
    "ORTE_",
    "PMI",
)


class TritonPythonModel:
    """Triton's entry. Its thread takes requests; the loop's thread runs and answers them."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the model; returns when it can answer."""
        config = json.loads(args["model_config"])
        values = {key: entry["string_value"] for key, entry in config["parameters"].items()}
        folder = Path(args["model_repository"]) / args["model_version"]
        group = _device_group(values["gpu_device_ids"], args["model_instance_name"])
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRTLLM_VISIBLE_DEVICES"] = group
        for name in [
            name for name in os.environ if name.startswith(_MPI_JOB) and not name.startswith("PMIX_MCA_")
        ]:
            del os.environ[name]
        arguments = json.loads((folder / "model.yaml").read_text(encoding="utf-8"))
        arguments["model"] = str(folder / arguments["model"])
        self._exclude_input = values["exclude_input_in_output"] == "true"
        self._period_s = int(values["cancellation_check_period_ms"]) / 1000
        waiting = int(values["max_queue_size"])
        self._limit = int(config["max_batch_size"]) + waiting if waiting else 0
        self._tasks: dict[asyncio.Task[None], tuple[Reply, str]] = {}  # → where it answers, request id
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="llm", daemon=True)
        self._thread.start()
        self._engine: LlmEngine = self._on_loop(LlmEngine.start(arguments))
        self._watch = asyncio.run_coroutine_threadsafe(self._cancel_abandoned(), self._loop)

    def execute(self, requests: Sequence[Any]) -> None:
        """Takes requests in and returns at once; answers go through their response senders."""
        for request in requests:
            self._loop.call_soon_threadsafe(self._take, request)

    def finalize(self) -> None:
        """Cancels what is live and ends the LLM."""
        self._watch.cancel()
        self._on_loop(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _on_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._engine.stop()

    def _take(self, request: Any) -> None:
        reply = Reply(request.get_response_sender())
        try:
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            if "stop" in tensors and tensors["stop"].any():
                self._stop_request(request.request_id())
                reply.send(None, final=True)
                return
            jobs = self._admit(tensors)
        except Exception as exc:  # whatever it is, the request must be answered
            reply.fail(exc)
            return
        names = frozenset(request.requested_output_names())
        task = self._loop.create_task(self._serve(jobs, names, reply))
        self._tasks[task] = (reply, request.request_id())
        task.add_done_callback(self._tasks.pop)

    def _admit(self, tensors: dict[str, Any]) -> list[Job]:
        jobs = read_jobs(tensors, exclude_input=self._exclude_input)
        if self._limit and len(self._tasks) >= self._limit:
            raise Busy(f"{self._limit} requests run or wait already, please try again later")
        return jobs

    def _stop_request(self, request_id: str) -> None:
        if not request_id:
            raise Refused("a stop request needs the id of the running one")
        for task, (_, name) in list(self._tasks.items()):
            if name == request_id:
                task.cancel()

    async def _serve(self, jobs: list[Job], names: frozenset[str], reply: Reply) -> None:
        """Runs the prompts of one request; the last response of the last one carries the final flag."""
        left = len(jobs)

        async def run(job: Job) -> None:
            nonlocal left
            async with contextlib.aclosing(Progress(job, names, self._engine).responses()) as responses:
                async for tensors, ended in responses:
                    left -= ended
                    reply.send(pb_utils.InferenceResponse(tensors), final=left == 0)

        tasks = [self._loop.create_task(run(job)) for job in jobs]
        try:
            await asyncio.gather(*tasks)
        except (asyncio.CancelledError, Exception) as exc:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            reply.fail(exc)

    async def _cancel_abandoned(self) -> None:
        """A cancelled RPC is told by no callback: senders are asked in turn."""
        while True:
            await asyncio.sleep(self._period_s)
            for task, (reply, _) in list(self._tasks.items()):
                if reply.is_abandoned():
                    task.cancel()


def _device_group(groups: str, instance: str) -> str:
    """The GPUs of an instance, numbered at the end of its name: ``a_engine_0_1`` is the second."""
    number = instance.rsplit("_", 1)[-1]
    parts = groups.split(";")
    return parts[int(number) % len(parts)] if number.isdigit() else parts[0]


class Reply:
    """Where a request is answered.

    With the final response the server frees what the sender asks about: a question or a response after it
    ends the whole server with a segmentation fault (24.10), so both are left out from then on.
    """

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._complete = False

    def send(self, response: Any, *, final: bool) -> None:
        """Sends a response (None: the final flag alone)."""
        if self._complete:
            return
        self._complete = final
        self._sender.send(response, flags=FINAL if final else 0)

    def is_abandoned(self) -> bool:
        """Whether the client has gone before the final response."""
        return not self._complete and bool(self._sender.is_cancelled())

    def fail(self, exc: BaseException) -> None:
        """Ends the request with an error that its caller can act on."""
        if isinstance(exc, asyncio.CancelledError):
            message, code = "the request was cancelled", "CANCELLED"
        elif isinstance(exc, Refused):
            message, code = str(exc), exc.code
        else:
            message, code = told("the LLM failed", exc, pb_utils), "INTERNAL"
        if code == "UNAVAILABLE":  # a stream gives its client no code; the front reads this one
            message += f" [{code}]"
        error = pb_utils.TritonError(message, getattr(pb_utils.TritonError, code))
        self.send(pb_utils.InferenceResponse(error=error), final=True)
