"""`trtbuild doctor` on a real server, which closes its index as every server does that is started here."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from tests.support.grpc_engine import EngineClient, request

from trtbuild.cli import run as run_command
from trtbuild.serve.server import Server

pytestmark = [pytest.mark.server, pytest.mark.alone]


@pytest.fixture
def doctor(tiny_server: Server, capsys: Any) -> Any:
    """The rows of ``doctor --json`` with more flags, ``URL`` and ``METRICS`` being the server's addresses."""
    addresses = {"URL": tiny_server.http_address, "METRICS": tiny_server.metrics_address}

    def ask(*flags: str) -> list[dict[str, str]]:
        words = [addresses.get(flag, flag) for flag in flags]
        assert run_command(["doctor", "--json", *words]) == 0
        rows: list[dict[str, str]] = json.loads(capsys.readouterr().out)
        return rows

    return ask


def found(rows: list[dict[str, str]], check: str, state: str) -> str:
    return " | ".join(row["found"] for row in rows if (row["check"], row["state"]) == (check, state))


def test_models_are_known_by_the_metrics_where_the_index_is_closed(doctor: Any) -> None:
    rows = doctor("--url", "URL", "--metrics", "METRICS")
    assert found(rows, "models", "ok") == "ready: narrow, slow, tiny"
    assert found(rows, "batching", "ok").count("batches in flight") == 3
    # 2048 tokens in blocks of 32
    assert re.search(r"tiny: \d of 64 KV blocks are used", found(rows, "kv", "ok"))
    assert "streaming models: narrow, slow, tiny" in found(rows, "calls", "info")


def test_what_this_old_server_cannot_measure_is_not_asked_for(doctor: Any) -> None:
    """The flag for it is set: Triton 24.10 has no such histogram."""
    rows = doctor("--url", "URL", "--metrics", "METRICS")
    (row,) = [row for row in rows if "time to first token" in row["found"]]
    assert row["remedy"].startswith("server 2.51.0 has none")


def test_addresses_may_be_urls(doctor: Any, tiny_server: Server) -> None:
    port, metrics = tiny_server.record.http_port, tiny_server.record.metrics_port
    rows = doctor("--url", f"http://localhost:{port}/", "--metrics", f"http://localhost:{metrics}/metrics")
    assert found(rows, "models", "ok") == "ready: narrow, slow, tiny"


def test_without_metrics_and_index_it_says_that_nothing_can_be_looked_at(doctor: Any) -> None:
    rows = doctor("--url", "URL", "--metrics", "127.0.0.1:9")
    assert "does not list its models" in found(rows, "models", "warning")
    assert "metrics port does not answer" in found(rows, "metrics", "warning")


def test_running_requests_are_seen(doctor: Any, tiny_server: Server) -> None:
    """Two streams of the slow model run while it is asked, and hold blocks."""

    async def ask_meanwhile() -> list[dict[str, str]]:
        async with EngineClient(tiny_server.grpc_address) as client:
            streams = [
                asyncio.create_task(client.answer(request("slow", [number, 2, 3], 400))) for number in (1, 9)
            ]
            for _ in range(200):
                rows: list[dict[str, str]] = await asyncio.to_thread(
                    doctor, "--url", "URL", "--metrics", "METRICS"
                )
                if "slow batches in flight: 2 requests" in found(rows, "batching", "ok"):
                    break
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)
            return rows

    rows = asyncio.run(ask_meanwhile())
    assert "slow batches in flight: 2 requests generate now of 8 that it can run" in found(
        rows, "batching", "ok"
    )
