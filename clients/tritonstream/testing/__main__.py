"""A quick fake Triton as a process of its own: ``python -m tritonstream.testing``; prints its address.

For measuring clients: it serves one front model, ``llm``, which answers ``--tokens`` responses that all say
the same (``--echo``: the prompt), serialised once a request, with an id each where ids are asked for and
the counts at the end. For anything else there is ``FakeTriton``.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from typing import Any

from .. import _tensors
from .._proto import METHODS, grpc, grpc_aio, service_pb2
from ._arrays import put
from ._configs import config_of
from ._models import FakeModel

_TEXT = " token"


class QuickServer:
    """Answers configs and streams with bytes."""

    def __init__(self, tokens: int, between_s: float, echo: bool) -> None:
        self._tokens = tokens
        self._between_s = between_s
        self._echo = echo
        config = METHODS["ModelConfig"].response(config=config_of("llm", FakeModel()))
        self._config: bytes = config.SerializeToString()

    def service(self, details: Any) -> Any:
        """gRPC's look-up of a method."""
        name = details.method.rpartition("/")[2]
        if name == "ModelStreamInfer":
            return grpc.stream_stream_rpc_method_handler(self._stream)
        if name == "ModelConfig":
            return grpc.unary_unary_rpc_method_handler(self._give_config)
        return None

    async def _give_config(self, request: bytes, context: Any) -> bytes:
        return self._config

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async for raw in requests:
            request = service_pb2.ModelInferRequest.FromString(raw)
            more, last = (self._response(request, final) for final in (False, True))
            for number in range(self._tokens):
                await context.write(last if number == self._tokens - 1 else more)
                if self._between_s:
                    await asyncio.sleep(self._between_s)

    def _response(self, request: Any, final: bool) -> bytes:
        prompt = _prompt(request)
        text = prompt if self._echo else _TEXT.encode()
        response = service_pb2.ModelInferResponse(model_name="llm", model_version="1", id=request.id)
        put(response, "text_output", "BYTES", [1, 1], _tensors.pack_bytes([text]))
        counts = {"token_ids": 1} if any(output.name == "token_ids" for output in request.outputs) else {}
        if final:
            counts |= {"num_input_tokens": len(prompt.split()), "num_output_tokens": self._tokens}
        for name, count in counts.items():
            put(response, name, "INT32", [1, 1], _tensors.pack(name, "INT32", [count]))
        response.parameters["triton_final_response"].bool_param = final
        serialised: bytes = service_pb2.ModelStreamInferResponse(infer_response=response).SerializeToString()
        return serialised


def _prompt(request: Any) -> bytes:
    at = [tensor.name for tensor in request.inputs].index("text_input")
    return _tensors.unpack_bytes(request.raw_input_contents[at])[0]


async def serve(quick: QuickServer, port: int) -> None:
    """Serves until the process is ended."""
    server = grpc_aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((quick,))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tritonstream.testing", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--tokens", type=int, default=64, help="responses per request")
    parser.add_argument("--between-ms", type=float, default=0.0, help="pause after each response")
    parser.add_argument("--echo", action="store_true", help="every response says the prompt")
    options = parser.parse_args()
    quick = QuickServer(options.tokens, options.between_ms / 1000, options.echo)
    asyncio.run(serve(quick, options.port))


if __name__ == "__main__":
    main()
