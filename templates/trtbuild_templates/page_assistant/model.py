"""Reads a page and asks a language model of the same server about it; the answer streams (Triton's Python
backend).

Inputs ``image`` STRING[1] (encoded), ``question`` STRING[1] and ``max_tokens`` INT32[1]; output
``text_output`` STRING[1], the new text, in as many responses as the language model sends. Both models are
called over loopback gRPC from one asyncio thread, an RPC a request: iterating decoupled BLS responses from
several threads deadlocks.

Parameters of config.pbtxt: ``reader_model``, ``llm_model``, ``max_page_characters`` (what is longer is cut)
and ``address``, host:port of this server's gRPC; TRTBUILD_GRPC_ADDRESS in the environment goes before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from trtbuild_templates.faults import is_of_the_inside, told
else:
    from .faults import is_of_the_inside, told

_LOOK_FOR_CLIENT_S = 0.05  # is_cancelled costs the loop 77 µs
_PROMPT = "This is the text of a page:\n\n{page}\n\n{question}"
_NOTHING_READ = "There is no text on the page."


class TritonPythonModel:
    """Takes requests in Triton's thread; all else happens in the loop's."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the parameters and starts the loop; neither model need exist yet.

        Raises:
            pb_utils.TritonModelException: a parameter is missing.
        """
        parameters = {
            key: value["string_value"]
            for key, value in json.loads(args["model_config"])["parameters"].items()
        }
        try:
            self._reader, self._llm = parameters["reader_model"], parameters["llm_model"]
            self._most = int(parameters["max_page_characters"])
            self._address = os.environ.get("TRTBUILD_GRPC_ADDRESS") or parameters["address"]
        except (KeyError, ValueError) as error:
            raise pb_utils.TritonModelException(f"config.pbtxt lacks a parameter: {error!r}") from error
        self._client: Any = None
        self._loop = asyncio.new_event_loop()
        self._running: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="assistant", daemon=True)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        """Takes requests in and returns at once."""
        for request in requests:
            tensors = {tensor.name(): tensor.as_numpy().reshape(-1) for tensor in request.inputs()}
            sender = request.get_response_sender()
            self._loop.call_soon_threadsafe(self._start, sender, tensors)

    def finalize(self) -> None:
        """Ends what runs, and the loop."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    def _start(self, sender: Any, tensors: dict[str, Any]) -> None:
        task = self._loop.create_task(self._answer(sender, tensors))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, sender: Any, tensors: dict[str, Any]) -> None:
        error = None
        try:
            page = await self._read(tensors["image"][0])
            if not page:
                sender.send(_text(_NOTHING_READ.encode()))
            elif not sender.is_cancelled():
                await self._ask(sender, page, tensors)
        except asyncio.CancelledError:
            error = pb_utils.TritonError("the page assistant is stopping", pb_utils.TritonError.UNAVAILABLE)
        except Exception as problem:  # of this request, whatever it is
            # What the two models say is for whoever asks; anything else is for the log.
            said = problem.message() if hasattr(problem, "message") else None
            if said is None or is_of_the_inside(said):
                text = told("the page assistant failed", said or problem, pb_utils)
            else:
                text = f"the page assistant failed: {said}"
            error = pb_utils.TritonError(text, pb_utils.TritonError.INTERNAL)
        # The last word: nothing is sent or asked of the sender behind it.
        if error is None:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        else:
            sender.send(
                pb_utils.InferenceResponse(output_tensors=[], error=error),
                flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
            )

    async def _read(self, image: bytes) -> str:
        answer = await self._grpc().infer(self._reader, [_input("image", "BYTES", [1], [image])])
        lines = [line.decode("utf-8", "replace") for line in answer.as_numpy("text")]
        return "\n".join(lines)[: self._most]

    async def _ask(self, sender: Any, page: str, tensors: dict[str, Any]) -> None:
        question = tensors["question"][0].decode("utf-8", "replace")
        messages = [{"role": "user", "content": _PROMPT.format(page=page, question=question)}]
        inputs = [
            _input("messages", "BYTES", [1, 1], [json.dumps(messages).encode()]),
            _input("stream", "BOOL", [1, 1], [True]),
        ]
        if "max_tokens" in tensors:
            inputs.append(_input("max_tokens", "INT32", [1, 1], [int(tensors["max_tokens"][0])]))

        async def one_request() -> AsyncIterator[dict[str, Any]]:
            yield {"model_name": self._llm, "inputs": inputs}

        responses = self._grpc().stream_infer(one_request())
        looked = time.monotonic()
        try:
            async for result, error in responses:
                if error is not None:
                    raise error
                text = result.as_numpy("text_output")
                if text is not None and text.size and text.item():
                    sender.send(_text(text.item()))
                if time.monotonic() - looked >= _LOOK_FOR_CLIENT_S:
                    looked = time.monotonic()
                    if sender.is_cancelled():
                        return
        finally:
            with contextlib.suppress(Exception):  # leaving early ends the RPC, so that the engine stops
                responses.cancel()

    def _grpc(self) -> Any:
        if self._client is None:
            import tritonclient.grpc.aio as grpc_aio

            self._client = grpc_aio.InferenceServerClient(self._address)
        return self._client

    async def _close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._client is not None:
            await self._client.close()


def _input(name: str, kind: str, shape: list[int], values: list[Any]) -> Any:
    import tritonclient.grpc.aio as grpc_aio

    numbers = {"BYTES": np.object_, "BOOL": np.bool_, "INT32": np.int32}[kind]
    tensor = grpc_aio.InferInput(name, shape, kind)
    tensor.set_data_from_numpy(np.array(values, dtype=numbers).reshape(shape))
    return tensor


def _text(piece: bytes) -> Any:
    tensor = pb_utils.Tensor("text_output", np.array([piece], dtype=np.object_))
    return pb_utils.InferenceResponse(output_tensors=[tensor])
