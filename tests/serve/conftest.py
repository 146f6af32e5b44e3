"""One real tritonserver for the engine's tests, with two tiny random models."""

from __future__ import annotations

import asyncio
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


@pytest.fixture(scope="session", autouse=True)
def state_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Records of servers go to a folder of the test run, also those of child processes."""
    patch = pytest.MonkeyPatch()
    root = tmp_path_factory.mktemp("state")
    patch.setenv("TRTBUILD_STATE", str(root))
    yield root
    patch.undo()


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("weights") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_server(tmp_path_factory: pytest.TempPathFactory, tiny_weights: Path) -> Iterator[Server]:
    """``tiny``: 64 blocks, beams up to 4. ``narrow``: one sequence at a time and a queue of two."""
    repository = tmp_path_factory.mktemp("repository")
    tiny = engine_config(
        "tiny",
        parameters={
            "max_tokens_in_paged_kv_cache": "2048",
            "max_beam_width": "4",
            "guided_decoding_backend": "xgrammar",
        },
    )
    narrow = engine_config(
        "narrow",
        parameters={"max_tokens_in_paged_kv_cache": "1024", "enable_chunked_context": "false"},
        max_queue_size=2,
    )
    write_engine(repository, tiny_weights, config=tiny, max_batch_size=32, max_seq_len=2048)
    write_engine(
        repository, tiny_weights, config=narrow, max_batch_size=1, max_num_tokens=64, max_seq_len=2048
    )
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
