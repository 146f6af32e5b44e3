"""One real tritonserver for the engine's tests, with two tiny random models."""

from __future__ import annotations

import asyncio
import importlib.util
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.engine_repo import engine_config, write_engine
from tests.support.grpc_engine import EngineClient
from tests.support.tiny_gguf import write_tiny_gguf

from trtbuild.serve.server import Server, start

T = TypeVar("T")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The server's wheel does not exist for every Python (trtbuild.serve.wheel)."""
    if importlib.util.find_spec("pytriton") is None:
        reason = pytest.mark.skip(reason="nvidia-pytriton is not installed: pip install 'trtbuild[local]'")
        for item in items:
            if item.get_closest_marker("server") and "serve" in item.path.parts:
                item.add_marker(reason)


TINY = {
    "max_tokens_in_paged_kv_cache": "2048",
    "max_beam_width": "4",
    "guided_decoding_backend": "xgrammar",
}
SLOW = {"max_tokens_in_paged_kv_cache": "8192"}
NARROW = {"max_tokens_in_paged_kv_cache": "1024", "enable_chunked_context": "false"}


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("weights") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_server(tmp_path_factory: pytest.TempPathFactory, tiny_weights: Path) -> Iterator[Server]:
    """``tiny``: 64 blocks, beams up to 4. ``slow``: some milliseconds a step, so that a client on a busy
    machine sees its requests run. ``narrow``: as slow, one sequence at a time and a queue of two."""
    repository = tmp_path_factory.mktemp("repository")
    slow_weights = write_tiny_gguf(
        tmp_path_factory.mktemp("slow") / "slow.gguf", layers=24, hidden=128, context=8192
    )
    for name, weights, limits, parameters, queue in (
        ("tiny", tiny_weights, {"max_batch_size": 32, "max_seq_len": 2048}, TINY, 0),
        ("slow", slow_weights, {"max_batch_size": 8, "max_seq_len": 8192}, SLOW, 0),
        ("narrow", slow_weights, {"max_batch_size": 1, "max_num_tokens": 64}, NARROW, 2),
    ):
        config = engine_config(name, parameters=parameters, max_queue_size=queue)
        write_engine(repository, weights, config=config, **limits)
    with start(repository) as server:
        yield server


@pytest.fixture
def run(tiny_server: Server) -> Callable[[Callable[[EngineClient], Awaitable[Any]]], Any]:
    """Runs a coroutine that takes a client of the tiny server."""

    def call(body: Callable[[EngineClient], Awaitable[T]]) -> T:
        async def with_client() -> T:
            async with EngineClient(tiny_server.grpc_address) as client:
                return await body(client)

        return asyncio.run(with_client())

    return call


@pytest.fixture
def gauge(tiny_server: Server) -> Callable[[str, str], float]:
    """Reads ``nv_trt_llm_*`` of a model by the value of its type label."""

    def read(model: str, kind: str) -> float:
        with urllib.request.urlopen(f"http://{tiny_server.metrics_address}/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("nv_trt_llm_") and f'model="{model}"' in line and f'="{kind}"' in line:
                    return float(line.rsplit(" ", 1)[1])
        raise KeyError(f"no gauge {kind} of {model}")

    return read
