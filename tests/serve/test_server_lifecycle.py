"""The tritonserver process: what it refuses, how it ends, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.engine_repo import engine_config, write_engine
from tests.support.grpc_engine import EngineClient, EngineError, request

from trtbuild.cli import run
from trtbuild.errors import ServeError
from trtbuild.serve import registry, shm
from trtbuild.serve.ports import Ports
from trtbuild.serve.process import of_server, stubs_of
from trtbuild.serve.server import start
from trtbuild.serve.state import ServerRecord, StateFolder
from trtbuild.serve.supervise import ServeEvent, serve_forever

pytestmark = [pytest.mark.server, pytest.mark.alone]

PROMPT = [10, 20, 30]


@pytest.fixture
def repository(tmp_path: Path, tiny_weights: Path) -> Path:
    write_engine(tmp_path / "repo", tiny_weights, config=engine_config("tiny"))
    return tmp_path / "repo"


def until(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.05)


def nothing_is_left(record: ServerRecord) -> bool:
    return not of_server(record.server_id) and not shm.regions(record.server_id)


async def tokens(address: str, count: int) -> int:
    async with EngineClient(address) as client:
        return len((await client.answer(request("tiny", PROMPT, count))).ids)


def test_it_serves_and_leaves_nothing(repository: Path) -> None:
    with start(repository) as server:
        assert server.is_ready()
        assert asyncio.run(tokens(server.grpc_address, 5)) == 5
        assert shm.regions(server.shm_prefix)
        assert stubs_of(server.pid)
        record = server.record
    assert nothing_is_left(record)
    assert registry.running() == [] or repository not in [Path(r.repository) for r in registry.running()]


def test_one_server_a_repository(repository: Path) -> None:
    with start(repository) as server:
        with pytest.raises(ServeError, match=f"is served already by process {os.getpid()}"):
            start(repository)
        assert server.is_ready()


@pytest.mark.parametrize("name", ["grpc", "http", "metrics"])
def test_a_port_in_use_is_named_with_its_holder(repository: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=rf"Port {port} .*in use \(held by process {os.getpid()}, \w+"):
            start(repository, ports=Ports(**{name: port}))
    with start(repository):  # the repository is free again
        pass


def test_folders_that_are_no_repository(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="is not a folder"):
        start(tmp_path / "nowhere")
    with pytest.raises(ServeError, match=r"no folder in it has a config\.pbtxt"):
        start(tmp_path)


def test_a_model_that_does_not_load_says_why(tmp_path: Path, tiny_weights: Path) -> None:
    repository = tmp_path / "repo"
    write_engine(repository, tiny_weights, config=engine_config("fine"))
    write_engine(repository, tiny_weights, config=engine_config("broken", parameters={"num_nodes": "2"}))
    with pytest.raises(ServeError) as caught:
        start(repository)
    assert "model broken: parameter num_nodes is '2', which the CPU engine cannot honour" in str(caught.value)
    assert "At:" not in str(caught.value)  # no stack of the stub
    record = StateFolder.of(repository).read()
    assert record is None


def test_only_the_main_thread_may_start_one(repository: Path) -> None:
    caught: list[BaseException] = []

    def body() -> None:
        try:
            start(repository)
        except ServeError as error:
            caught.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert "only be started from the main thread" in str(caught[0])


def test_running_requests_finish_within_the_grace_time(repository: Path) -> None:
    async def body() -> None:
        server = start(repository, grace_s=30)
        async with EngineClient(server.grpc_address) as client:
            events = aiter(client.stream(request("tiny", PROMPT, 400, streaming=True)))
            got = len((await anext(events)).ids)
            stopping = asyncio.create_task(asyncio.to_thread(server.stop))
            async for response in events:
                got += len(response.ids)
            assert got == 400
            await stopping
        assert nothing_is_left(server.record)

    asyncio.run(body())


def test_after_the_grace_time_they_are_cancelled(repository: Path) -> None:
    async def body() -> None:
        server = start(repository, grace_s=0.5)
        async with EngineClient(server.grpc_address) as client:
            events = aiter(client.stream(request("tiny", PROMPT, 4000, streaming=True)))
            await anext(events)
            begun_s = time.monotonic()
            stopping = asyncio.create_task(asyncio.to_thread(server.stop))
            with pytest.raises(EngineError, match="the server is shutting down"):
                async for _ in events:
                    pass
            await stopping
            assert time.monotonic() - begun_s < 15  # not the stub's 30 s
        assert server.exit_code == 0  # it ended by itself
        assert nothing_is_left(server.record)

    asyncio.run(body())


_OWNER = """
import sys, time
from pathlib import Path
from trtbuild.serve.server import start
start(Path(sys.argv[1]))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(repository: Path) -> Iterator[tuple[subprocess.Popen[bytes], ServerRecord]]:
    """Another process that runs a server of ``repository``."""
    process = subprocess.Popen([sys.executable, "-c", _OWNER, str(repository)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process, registry.find(repository)
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_server_ends_with_its_owner(owner: tuple[subprocess.Popen[bytes], ServerRecord]) -> None:
    process, record = owner

    async def body() -> None:
        async with EngineClient(f"127.0.0.1:{record.grpc_port}") as client:
            events = aiter(client.stream(request("tiny", PROMPT, 4000, streaming=True)))
            await anext(events)  # a running request does not hold it up
            process.kill()
            with pytest.raises(EngineError, match="the server is shutting down"):
                async for _ in events:
                    pass

    asyncio.run(body())
    until(lambda: nothing_is_left(record))


def test_what_a_killed_server_left_is_cleaned_at_the_next_start(
    repository: Path, owner: tuple[subprocess.Popen[bytes], ServerRecord]
) -> None:
    process, record = owner
    process.send_signal(signal.SIGSTOP)  # so that it cannot act
    os.kill(record.server_pid, signal.SIGKILL)
    process.kill()
    process.wait()
    assert shm.regions(record.server_id)
    with start(repository) as server:
        assert nothing_is_left(record)
        assert asyncio.run(tokens(server.grpc_address, 2)) == 2


def test_a_model_that_lacks_another_is_left_out_and_the_others_are_served(repository: Path) -> None:
    (repository / "both" / "1").mkdir(parents=True)
    (repository / "both" / "config.pbtxt").write_text(
        'name: "both"\nplatform: "ensemble"\nensemble_scheduling { step { model_name: "gone" } }\n'
    )
    script = Script(kill_server)  # the same at a restart
    serve_forever(repository, on_event=script)
    assert script.kinds.count("ready") == 2
    assert sum("not served: both (it needs gone)" in event.message for event in script.events) == 2
    with start(repository) as server:
        assert registry.models_of(server.record) == {"both": False, "tiny": True}
        assert asyncio.run(tokens(server.grpc_address, 2)) == 2


def test_a_model_that_was_added_after_the_start_is_not_loaded(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with start(repository) as server:
        later = shutil.copytree(repository / "tiny", repository / "later") / "config.pbtxt"
        later.write_text(later.read_text().replace("tiny", "later"))
        assert registry.models_of(server.record) == {"tiny": True}
        assert registry.not_loaded(server.record) == {"later"}
        assert run(["status", str(repository), "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["models"], row["not_loaded"]) == ({"tiny": True}, ["later"])
        assert run(["ask", "x", "--repo", str(repository), "--model", "later"]) == 1
        said = capsys.readouterr().err
        assert "has not loaded later" in said
        assert f"trtbuild serve {repository} --detach --grpc-port {server.record.grpc_port}" in said


class Script:
    """Plays faults into ``serve_forever``: one action each time the server is ready, then SIGTERM."""

    def __init__(self, *actions: Callable[[ServerRecord], None]) -> None:
        self._actions = list(actions)
        self.events: list[ServeEvent] = []

    def __call__(self, event: ServeEvent) -> None:
        self.events.append(event)
        if event.kind == "ready":
            assert event.server is not None
            action = (
                self._actions.pop(0) if self._actions else lambda record: os.kill(os.getpid(), signal.SIGTERM)
            )
            action(event.server.record)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def kill_server(record: ServerRecord) -> None:
    os.kill(record.server_pid, signal.SIGKILL)


def kill_stub(record: ServerRecord) -> None:
    for pid in stubs_of(record.server_pid):
        os.kill(pid, signal.SIGKILL)


def test_a_crash_and_a_killed_stub_are_mended_on_the_same_ports(repository: Path) -> None:
    script = Script(kill_server, kill_stub)
    serve_forever(repository, on_event=script)
    ready = ["starting", "ready"]
    assert script.kinds == [
        *ready,
        "failed",
        "restarting",
        *ready,
        "failed",
        "restarting",
        *ready,
        "stopping",
        "stopped",
    ]
    faults = [event.message for event in script.events if event.kind == "failed"]
    assert faults[0] == "tritonserver ended with code -9"
    assert "stub" in faults[1]
    records = [event.server.record for event in script.events if event.kind == "ready" and event.server]
    assert len({(r.grpc_port, r.http_port, r.metrics_port) for r in records}) == 1
    assert all(nothing_is_left(record) for record in records)


def test_restarts_have_a_limit(repository: Path) -> None:
    script = Script(kill_server, kill_server)
    with pytest.raises(ServeError, match=r"failed 2 times in 10 minutes, at last: tritonserver ended"):
        serve_forever(repository, restarts=1, on_event=script)
    with start(repository):  # and the repository is free
        pass


def test_a_detached_server(repository: Path) -> None:
    record = registry.start_detached(repository)
    try:
        assert record.detached
        assert record in registry.running()
        status = registry.status(repository)
        assert status.health == "ready"
        assert status.models == {"tiny": True}
        assert asyncio.run(tokens(f"127.0.0.1:{record.grpc_port}", 3)) == 3
        assert registry.log_path(repository).read_text()
        with pytest.raises(ServeError, match=f"served already by .* 127.0.0.1:{record.grpc_port}"):
            registry.start_detached(repository)
    finally:
        registry.stop(repository)
    until(lambda: not psutil.pid_exists(record.owner_pid))
    assert nothing_is_left(record)
    with pytest.raises(ServeError, match="was stopped"):
        registry.status(repository)


def test_a_detached_server_that_does_not_start_says_why(tmp_path: Path, tiny_weights: Path) -> None:
    broken = engine_config("broken", parameters={"num_nodes": "2"})
    write_engine(tmp_path / "repo", tiny_weights, config=broken)
    with pytest.raises(ServeError, match="model broken: parameter num_nodes is '2'"):
        registry.start_detached(tmp_path / "repo")
