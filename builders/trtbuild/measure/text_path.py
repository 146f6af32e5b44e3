"""The text front against a direct call of its engine, with an engine that takes no time: pairs and ratios.

Both arms are read by the same client, raw asyncio stubs of grpcio with one RPC a request, and get the same
number of tokens. The direct arm stands for what any client of the engine model pays.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

PROMPT = "{} bottles of beer on the wall, some words, and yet more words to come"


@dataclass(frozen=True)
class Burst:
    """Streams that began together. Times in seconds since then."""

    tokens: int
    responses: int
    seconds: float
    first_s: tuple[float, ...]  # of each stream
    cpu_s: dict[str, float]  # by process

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def first_p99_s(self) -> float:
        """The 99th percentile of the first responses, by rank."""
        ranked = sorted(self.first_s)
        return ranked[min(len(ranked) - 1, int(0.99 * len(ranked)))]


@dataclass(frozen=True)
class Summary:
    """Medians over pairs of bursts, a moment apart; CPU over all of them."""

    pairs: int
    ratio: float
    ratio_low: float
    ratio_high: float
    front_tokens_per_s: float
    direct_tokens_per_s: float
    tokens_per_response: float
    first_p99_ratio: float
    front_first_p99_ms: float
    direct_first_p99_ms: float
    front_cpu_us_per_token: dict[str, float]
    direct_cpu_us_per_token: dict[str, float]


def summarise(pairs: Sequence[tuple[Burst, Burst]]) -> Summary:
    """Of (front, direct) pairs."""
    ratios = sorted(front.tokens_per_s / direct.tokens_per_s for front, direct in pairs)
    fronts, directs = [front for front, _ in pairs], [direct for _, direct in pairs]
    return Summary(
        pairs=len(pairs),
        ratio=statistics.median(ratios),
        ratio_low=ratios[0],
        ratio_high=ratios[-1],
        front_tokens_per_s=statistics.median(burst.tokens_per_s for burst in fronts),
        direct_tokens_per_s=statistics.median(burst.tokens_per_s for burst in directs),
        tokens_per_response=sum(b.tokens for b in fronts) / sum(b.responses for b in fronts),
        first_p99_ratio=statistics.median(front.first_p99_s / direct.first_p99_s for front, direct in pairs),
        front_first_p99_ms=1e3 * statistics.median(burst.first_p99_s for burst in fronts),
        direct_first_p99_ms=1e3 * statistics.median(burst.first_p99_s for burst in directs),
        front_cpu_us_per_token=_cpu_us_per_token(fronts),
        direct_cpu_us_per_token=_cpu_us_per_token(directs),
    )


def _cpu_us_per_token(bursts: Sequence[Burst]) -> dict[str, float]:
    roles = sorted({role for burst in bursts for role in burst.cpu_s})
    tokens = sum(burst.tokens for burst in bursts)
    return {role: 1e6 * sum(burst.cpu_s.get(role, 0.0) for burst in bursts) / tokens for role in roles}


class Arms:
    """Both ways to the engine over one channel.

    Args:
        channel: to the server, of grpc.aio.
        clock: CPU seconds so far by process (``bench_local.CpuClock``).
        prompt_ids: ids of the prompt of each stream, for the direct arm.
    """

    def __init__(
        self, channel: Any, clock: Any, prompt_ids: Sequence[Sequence[int]], model: str = "m"
    ) -> None:
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        self._clock = clock
        self._prompt_ids = prompt_ids
        self._model = model

    async def direct(self, streams: int, tokens: int) -> Burst:
        """One burst of raw calls of the engine model."""
        requests = [self._engine_request(self._prompt_ids[index], tokens) for index in range(streams)]
        return await self._burst(requests, streams * tokens)

    async def front(self, streams: int, tokens: int) -> Burst:
        """One burst through the text front."""
        requests = [self._front_request(PROMPT.format(index), tokens) for index in range(streams)]
        return await self._burst(requests, streams * tokens)

    async def _burst(self, requests: Sequence[Any], tokens: int) -> Burst:
        before = self._clock.read()
        begun_s = time.perf_counter()

        async def one(request: Any) -> tuple[float, int]:
            first_s, responses = 0.0, 0
            async for message in self._stub.ModelStreamInfer(iter((request,))):
                if message.error_message:
                    raise RuntimeError(message.error_message)
                responses += 1
                first_s = first_s or time.perf_counter() - begun_s
            return first_s, responses

        answers = await asyncio.gather(*(one(request) for request in requests))
        seconds = time.perf_counter() - begun_s
        cpu_s = {role: total - before.get(role, 0.0) for role, total in self._clock.read().items()}
        firsts = tuple(first_s for first_s, _ in answers)
        return Burst(tokens, sum(responses for _, responses in answers), seconds, firsts, cpu_s)

    def _engine_request(self, ids: Sequence[int], tokens: int) -> Any:
        inputs = {
            "input_ids": np.array([ids], dtype=np.int32),
            "input_lengths": np.array([[len(ids)]], dtype=np.int32),
            "request_output_len": np.array([[tokens]], dtype=np.int32),
            "streaming": np.array([[True]]),
        }
        return _request(f"{self._model}_engine", inputs, ("output_ids", "sequence_length"))

    def _front_request(self, text: str, tokens: int) -> Any:
        inputs = {
            "text_input": np.array([[text.encode()]], dtype=np.object_),
            "max_tokens": np.array([[tokens]], dtype=np.int32),
            "stream": np.array([[True]]),
        }
        return _request(self._model, inputs, ("text_output", "finish_reason"))


def _request(model: str, inputs: dict[str, Any], outputs: Iterable[str]) -> Any:
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, array in inputs.items():
        datatype, raw = {"i": "INT32", "b": "BOOL", "O": "BYTES"}[array.dtype.kind], array.tobytes()
        if datatype == "BYTES":
            raw = b"".join(len(item).to_bytes(4, "little") + item for item in array.ravel())
        message.inputs.add(name=name, datatype=datatype, shape=array.shape)
        message.raw_input_contents.append(raw)
    for name in outputs:
        message.outputs.add().name = name
    return message
