from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_process import engine_process
from tests.support.grpc_engine import EngineClient, request

from trtbuild.serve import watch
from trtbuild.serve.server import Server
from trtbuild.serve.watch import Watch, engines_of, probe, read_counters

pytestmark = [pytest.mark.server, pytest.mark.alone]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look asks, and a second of silence is too long."""
    monkeypatch.setattr(watch, "PROBE_EVERY_S", 0.0)
    monkeypatch.setattr(watch, "PROBE_TIMEOUT_S", 1.0)
    monkeypatch.setattr(watch, "STALL_S", 0.5)


@pytest.fixture
def hang(tiny_server: Server) -> Iterator[Callable[[str], None]]:
    """Stops a model's engine as a hang would, and lets it go on at the end."""
    stopped = []

    def stop(model: str) -> None:
        stopped.append(engine_process(tiny_server, model))
        stopped[-1].send_signal(signal.SIGSTOP)

    yield stop
    for engine in stopped:
        engine.send_signal(signal.SIGCONT)


def repository_of(server: Server) -> Path:
    return Path(server.record.repository)


def test_engines_are_told_from_other_models(tmp_path: Path) -> None:
    for name, backend in (("llm_engine", "tensorrtllm"), ("llm", "python"), ("ocr_det", "onnxruntime")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "{backend}"\n')
    assert engines_of(tmp_path) == ["llm_engine"]


def test_an_engine_at_rest_answers_the_probe(tiny_server: Server, impatient: None) -> None:
    health = Watch(tiny_server.record, repository_of(tiny_server), tiny_server.stubs)
    assert [health.fault() for _ in range(3)] == [None] * 3
    assert probe(tiny_server.record.http_port, "tiny") is None
    assert {"tiny", "narrow"} <= set(read_counters(tiny_server.record.metrics_port))


def test_a_model_that_does_not_exist_has_no_fault_of_its_own(tiny_server: Server) -> None:
    assert probe(tiny_server.record.http_port, "nowhere") is None  # the server answers: it is healthy


def test_an_idle_engine_that_hangs_is_noticed(
    tiny_server: Server, impatient: None, hang: Callable[[str], None]
) -> None:
    health = Watch(tiny_server.record, repository_of(tiny_server), tiny_server.stubs)
    health.fault()  # learns the counters
    hang("tiny")
    faults = [health.fault() for _ in range(3)]
    assert any(fault and "tiny did not answer a request for one token" in fault for fault in faults), faults


def test_a_busy_engine_that_hangs_is_noticed(
    tiny_server: Server, impatient: None, hang: Callable[[str], None], gauge: Callable[[str, str], float]
) -> None:
    async def body() -> str | None:
        async with EngineClient(tiny_server.grpc_address) as client:
            stream: Any = client.stream(request("slow", [5, 6, 7], 7000, streaming=True))
            await anext(aiter(stream))
            while gauge("slow", "active") == 0:
                await asyncio.sleep(0.02)
            health = Watch(tiny_server.record, repository_of(tiny_server), tiny_server.stubs)
            hang("slow")
            fault = None
            for _ in range(100):
                fault = fault or health.fault()
                await asyncio.sleep(0.02)
            stream.cancel()
            return fault

    fault = asyncio.run(body())
    assert fault is not None
    assert fault.startswith("slow has made no step for")


def test_a_stub_that_is_gone_is_noticed(tiny_server: Server) -> None:
    health = Watch(tiny_server.record, repository_of(tiny_server), {**tiny_server.stubs, 2**22 + 1: 0.0})
    assert health.fault() == "the Python stub 4194305 is gone"
