"""The engine's connection: made when needed, made again when lost, and errors that name things."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import pytest
from tests.support.front_modules import front_module
from tests.support.real_tokenizers import table
from tritonclient.grpc import service_pb2

answer = front_module("answer")
engine = front_module("engine")
inputs = front_module("inputs")
meter = front_module("meter")
prepare = front_module("prepare")

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
Behaviour = Callable[[grpc.ServicerContext], Iterator[bytes]]


def _token(id_: int, *, final: bool) -> bytes:
    message = service_pb2.ModelStreamInferResponse()
    response = message.infer_response
    response.parameters["triton_final_response"].bool_param = final
    for name, array in (
        ("output_ids", np.array([[[id_]]], np.int32)),
        ("sequence_length", np.array([[1]], np.int32)),
    ):
        response.outputs.add(name=name, datatype="INT32", shape=array.shape)
        response.raw_output_contents.append(array.tobytes())
    return bytes(message.SerializeToString())


def _answers(context: grpc.ServicerContext) -> Iterator[bytes]:
    yield _token(500, final=False)
    yield _token(501, final=True)


def _aborts(context: grpc.ServicerContext) -> Iterator[bytes]:
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue is full\nmore words")
    yield b""


def _breaks(context: grpc.ServicerContext) -> Iterator[bytes]:
    yield b"\xff\xff\xff"


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    def service(self, details: Any) -> Any:
        def stream(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            next(requests)
            yield from self._behaviour(context)

        return grpc.stream_stream_rpc_method_handler(stream) if details.method == METHOD else None


@contextlib.contextmanager
def serving(behaviour: Behaviour, port: int = 0) -> Iterator[int]:
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_Handler(behaviour),))
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield bound
    finally:
        server.stop(None).wait()


def _new_answer() -> tuple[Any, asyncio.Event]:
    done = asyncio.Event()
    request = inputs.TextRequest(text="x")
    made = answer.Answer(request, frozenset({"text_output"}), None, lambda _: done.set(), meter.Meter())
    made.begin(prepare.Prepared(b"", "x", 1, 0, 10, frozenset({2}), frozenset({2}), ()), table("smollm2"))
    return made, done


async def _ask(calls: Any) -> Any:
    made, done = _new_answer()
    calls.start([made])
    await asyncio.wait_for(done.wait(), 20)
    return made


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_calls_on_one_connection_answer() -> None:
    async def run(port: int) -> None:
        calls = engine.Engine(f"127.0.0.1:{port}", "e")
        for made in await asyncio.gather(*(_ask(calls) for _ in range(40))):
            assert (made.reason, made.failure, made.output_tokens) == ("stop", None, 2)
        calls.close()

    with serving(_answers) as port:
        asyncio.run(run(port))


def test_a_server_that_is_not_there_is_named_and_found_when_it_comes() -> None:
    port = _free_port()

    async def run() -> None:
        calls = engine.Engine(f"127.0.0.1:{port}", "m_engine")
        code, message, _ = (await _ask(calls)).failure
        assert code == "UNAVAILABLE"
        assert f"m_engine at 127.0.0.1:{port} is not reachable" in message
        for _ in range(2):  # it goes and comes again: the connection is made anew
            with serving(_answers, port):
                assert (await _ask(calls)).reason == "stop"
            await asyncio.sleep(0.05)
        assert (await _ask(calls)).failure.code == "UNAVAILABLE"
        calls.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("behaviour", "code", "named"),
    [(_aborts, "INTERNAL", "m_engine failed: queue is full"), (_breaks, "INTERNAL", "the text front failed")],
)
def test_a_failed_call_ends_its_answer_in_one_line(behaviour: Behaviour, code: str, named: str) -> None:
    async def run(port: int) -> None:
        calls = engine.Engine(f"127.0.0.1:{port}", "m_engine")
        failure = (await _ask(calls)).failure
        assert failure.code == code
        assert named in failure.message
        assert "\n" not in failure.message
        calls.close()

    with serving(behaviour) as port:
        asyncio.run(run(port))


def test_a_port_that_speaks_something_else_is_told() -> None:
    async def run() -> None:
        async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        listener = await asyncio.start_server(other, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        calls = engine.Engine(f"127.0.0.1:{port}", "e")
        failure = (await _ask(calls)).failure
        assert failure.code == "UNAVAILABLE"
        calls.close()
        listener.close()
        await listener.wait_closed()

    asyncio.run(run())


@pytest.mark.parametrize("address", ["nowhere", "localhost:x", ":1"])
def test_an_address_that_is_none_is_told(address: str) -> None:
    async def run() -> None:
        calls = engine.Engine(address, "e")
        assert (await _ask(calls)).failure.code == "UNAVAILABLE"
        calls.close()

    asyncio.run(run())
