"""Clients that do the same work in different ways: ``tritonstream``, raw stubs, tritonclient's streaming API.

Each arm reads ``streams`` answers at once, ``rounds`` times, from a fake Triton in another process, and
touches every token's text. An arm's connections and threads are made anew for each run, which is long enough
for this not to matter.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

PROMPT = "some words of a prompt"
MODEL = "llm"
TOKEN_BYTES = len(" token")


@dataclass(frozen=True)
class Load:
    """What an arm has to do. ``tokens`` is what the server answers to each request."""

    address: str
    streams: int
    rounds: int
    tokens: int

    def check(self, text_bytes: int) -> None:
        """Raises if an answer is not whole."""
        if text_bytes != self.tokens * TOKEN_BYTES:
            raise AssertionError(f"got {text_bytes} bytes of {self.tokens} tokens")


def _request(number: int) -> Any:
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name=MODEL, id=str(number))
    prompt = PROMPT.encode()
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(len(prompt).to_bytes(4, "little") + prompt)
    request.inputs.add(name="max_tokens", datatype="INT32", shape=[1, 1])
    request.raw_input_contents.append((1 << 20).to_bytes(4, "little"))
    request.inputs.add(name="stream", datatype="BOOL", shape=[1, 1])
    request.raw_input_contents.append(b"\1")
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


def _threads(load: Load, work: Callable[[int], None]) -> None:
    """Runs ``work`` in a thread a stream; raises what any of them raised."""
    failed: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            for _ in range(load.rounds):
                work(number)
        except BaseException as exc:  # told to the main thread
            failed.append(exc)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(load.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def sync_stub(load: Load) -> None:
    """Threads over the generated stub."""
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    with grpc.insecure_channel(load.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def work(number: int) -> None:
            responses = stub.ModelStreamInfer(iter([_request(number)]))
            load.check(sum(len(response.infer_response.raw_output_contents[0]) - 4 for response in responses))

        _threads(load, work)


def sync_sdk(load: Load) -> None:
    """Threads over ``tritonstream.Client``."""
    from tritonstream import Client

    with Client(load.address) as client:

        def work(number: int) -> None:
            pieces = client.stream(MODEL, PROMPT, max_tokens=1 << 20).text_deltas()
            load.check(sum(map(len, pieces)))

        _threads(load, work)


def _tritonclient_inputs() -> list[Any]:
    import numpy as np
    from tritonclient.grpc import InferInput

    text = InferInput("text_input", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([[PROMPT.encode()]], dtype=object))
    most = InferInput("max_tokens", [1, 1], "INT32")
    most.set_data_from_numpy(np.array([[1 << 20]], dtype=np.int32))
    stream = InferInput("stream", [1, 1], "BOOL")
    stream.set_data_from_numpy(np.array([[True]]))
    return [text, most, stream]


def tritonclient_each(load: Load) -> None:
    """tritonclient with a client a stream, since it allows one active stream a client."""
    from tritonclient.grpc import InferenceServerClient

    def work(number: int) -> None:
        answers: queue.Queue[Any] = queue.Queue()
        with InferenceServerClient(load.address) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer(MODEL, _tritonclient_inputs(), request_id=str(number))
            text_bytes = 0
            for _ in range(load.tokens):
                result, error = answers.get(timeout=60)
                if error is not None:
                    raise error
                text_bytes += len(result.as_numpy("text_output").item())
            client.stop_stream()
        load.check(text_bytes)

    _threads(load, work)


def tritonclient_shared(load: Load) -> None:
    """tritonclient with all requests on one stream, told apart by their ids."""
    from tritonclient.grpc import InferenceServerClient

    for _ in range(load.rounds):
        answers: queue.Queue[Any] = queue.Queue()
        counts = dict.fromkeys(map(str, range(load.streams)), 0)
        with InferenceServerClient(load.address) as client:
            client.start_stream(lambda result, error, put=answers.put: put((result, error)))
            for number in counts:
                client.async_stream_infer(MODEL, _tritonclient_inputs(), request_id=number)
            for _ in range(load.streams * load.tokens):
                result, error = answers.get(timeout=60)
                if error is not None:
                    raise error
                counts[result.get_response().id] += len(result.as_numpy("text_output").item())
            client.stop_stream()
        for text_bytes in counts.values():
            load.check(text_bytes)


def _tasks(load: Load, work: Callable[[int], Awaitable[None]]) -> Awaitable[Any]:
    async def rounds(number: int) -> None:
        for _ in range(load.rounds):
            await work(number)

    return asyncio.gather(*[rounds(number) for number in range(load.streams)])


def async_stub(load: Load) -> None:
    """asyncio tasks over the generated stub."""
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    async def main() -> None:
        async with grpc.aio.insecure_channel(load.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

            async def work(number: int) -> None:
                text_bytes = 0
                async for response in stub.ModelStreamInfer(iter([_request(number)])):
                    text_bytes += len(response.infer_response.raw_output_contents[0]) - 4
                load.check(text_bytes)

            await _tasks(load, work)

    asyncio.run(main())


def async_sdk(load: Load) -> None:
    """asyncio tasks over ``tritonstream.AsyncClient``."""
    from tritonstream import AsyncClient, TextDelta

    async def main() -> None:
        async with AsyncClient(load.address) as client:

            async def work(number: int) -> None:
                text_bytes = 0
                async with client.stream(MODEL, PROMPT, max_tokens=1 << 20) as stream:
                    async for event in stream:
                        if isinstance(event, TextDelta):
                            text_bytes += len(event.text)
                load.check(text_bytes)

            await _tasks(load, work)

    asyncio.run(main())


ARMS: dict[str, Callable[[Load], None]] = {
    "raw stub, threads": sync_stub,
    "tritonstream.Client": sync_sdk,
    "raw stub, asyncio": async_stub,
    "tritonstream.AsyncClient": async_sdk,
    "tritonclient, a client a stream": tritonclient_each,
    "tritonclient, one stream for all": tritonclient_shared,
}
