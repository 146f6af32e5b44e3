"""Every state that a server can be in or have ended in is told apart, with its cause and what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.support.graphs import classifier, save
from tests.support.served import kept, record_of

from trtbuild.cli import run
from trtbuild.cli.connection import connect
from trtbuild.errors import ServeError
from trtbuild.repository.transaction import Change, staging_of
from trtbuild.serve import condition, leftovers, registry
from trtbuild.serve.condition import Condition, condition_of
from trtbuild.serve.server import claim
from trtbuild.serve.state import ServerRecord, StateFolder, boot_id

FAULT = "tritonserver ended with code -9"


@pytest.fixture(autouse=True)
def state_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRTBUILD_STATE", str(tmp_path / "state"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "my repo"  # a name that a shell splits
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "config.pbtxt").write_text('name: "tiny"\nbackend: "python"\n')
    return folder


class _Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = not self.path.startswith("/v2/models/second")
        body = b"" if known else b'{"error":"Request for unknown model: \'second\' is not found"}'
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def http_port() -> Iterator[int]:
    """Of a server that says that it is ready, and has loaded all but the model ``second``."""
    server = HTTPServer(("127.0.0.1", 0), _Ready)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def gone_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def left(repository: Path, record: ServerRecord) -> StateFolder:
    """A record whose owner holds no lock any more."""
    with kept(repository, record) as state:
        return state


def health(repository: Path) -> str:
    found = condition_of(repository)
    assert found is not None
    return found.health


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ready": False}, "starting"),
        ({"ready": False, "fault": FAULT}, "restarting"),
        ({}, "not ready"),  # nothing listens on port 1
        ({"server_pid": 2**22 + 1}, "restarting"),  # it has ended, and its supervisor has not looked yet
        ({"stopping": True}, "stopping"),
    ],
)
def test_a_server_whose_owner_lives(repository: Path, changes: dict[str, object], expected: str) -> None:
    with kept(repository, record_of(repository, **changes)):
        assert health(repository) == expected


def test_a_ready_one_is_asked(repository: Path, http_port: int) -> None:
    with kept(repository, record_of(repository, http_port=http_port)):
        assert health(repository) == "ready"


def test_one_that_has_no_process_yet_is_starting(repository: Path) -> None:
    with kept(repository):
        found = condition_of(repository)
    assert found is not None
    assert (found.health, found.repository, found.record) == ("starting", repository, None)


@pytest.mark.parametrize(("boot", "expected"), [(None, "killed"), ("of-another-day", "machine restarted")])
def test_one_that_ended_with_its_owner(repository: Path, boot: str | None, expected: str) -> None:
    record = record_of(repository, owner_pid=gone_pid(), boot_id=boot or boot_id())
    state = left(repository, record)
    assert health(repository) == expected
    leftovers.clean(state)  # as the start of any other server does
    assert state.read() is None
    assert health(repository) == expected


@pytest.mark.parametrize("kind", ["given up", "stopped"])
def test_how_it_ended_is_kept_until_the_next_one_has_a_process(repository: Path, kind: str) -> None:
    claimed = claim(repository)
    claimed.state.write(record_of(repository, restarts=5, grpc_port=4711))
    claimed.ended(kind, "it failed 6 times")
    found = condition_of(repository)
    assert found is not None
    assert (found.health, found.why, found.restarts, found.grpc_port) == (kind, "it failed 6 times", 5, 4711)
    with kept(repository):
        assert health(repository) == "starting"
    assert health(repository) == kind


def test_a_change_that_a_killed_writer_left_is_finished_before_a_server_starts(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    staging = staging_of(repo)
    (staging / "new" / "tiny").mkdir(parents=True)
    (staging / "new" / "tiny" / "config.pbtxt").write_text('name: "tiny"\nbackend: "python"\n')
    with pytest.raises(ServeError, match="is not a folder"):  # nothing was decided: as if it had not begun
        claim(repo)
    (staging / "journal.json").write_text(json.dumps(asdict(Change(folders=("tiny",)))))
    claim(repo).give_up()
    assert (repo / "tiny" / "config.pbtxt").is_file()
    assert not staging.exists()


def test_nobody_served_it(repository: Path) -> None:
    assert condition_of(repository) is None
    assert not StateFolder.of(repository).path.exists()  # looking leaves nothing


def test_a_repository_that_is_gone_is_not_told_of(repository: Path, tmp_path: Path) -> None:
    claim(repository).ended("given up", "no")
    assert [item.repository for item in condition.conditions()] == [repository]
    repository.rename(tmp_path / "elsewhere")
    assert condition.conditions() == []


def test_a_restart_is_waited_for(repository: Path, http_port: int) -> None:
    down = record_of(repository, ready=False, fault=FAULT, http_port=http_port)
    told = []

    with kept(repository, down) as state:

        @contextmanager
        def waiting(found: Condition) -> Iterator[None]:
            told.append(found.sentence())
            state.write(replace(down, ready=True))
            yield

        assert registry.reach(None, waiting=waiting).ready
    assert told == [f"the server of {repository} is being started again: {FAULT}"]


def test_a_restart_is_not_waited_for_without_end(repository: Path) -> None:
    down = record_of(repository, ready=False, fault=FAULT)
    with kept(repository, down), pytest.raises(ServeError, match=r"started again: .* waited for 0 s"):
        registry.reach(repository, wait_s=0)


ASKING = [
    ["ask", "x"],
    ["chat"],
    ["bench"],
    ["logs"],
]


@pytest.mark.parametrize("words", ASKING, ids=lambda words: words[0])
def test_who_asks_is_told_that_the_server_was_given_up(
    repository: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    claimed = claim(repository)
    claimed.state.log.write_text("the last words of tritonserver\n")
    claimed.ended("given up", f"The server failed 6 times: {FAULT}")
    code = run(words)
    said = capsys.readouterr()
    if words == ["logs"]:
        assert (code, said.out) == (0, "the last words of tritonserver\n")
        return
    assert code == 1
    assert f"the server of {repository} was given up: The server failed 6 times: {FAULT}" in said.err
    assert f"trtbuild logs '{repository}'" in said.err
    assert str(StateFolder.of(repository).log) in said.err
    assert f"trtbuild serve '{repository}' --detach" in said.err


def test_pictures_too(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim(repository).ended("given up", FAULT)
    picture = tmp_path / "a.png"
    picture.write_bytes(b"x")
    for command in ("ocr", "see"):
        assert run([command, str(picture), "--repo", str(repository)]) == 1
        assert f"was given up: {FAULT}" in capsys.readouterr().err


def test_who_names_its_old_address_is_told_too(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claimed = claim(repository)
    claimed.state.write(record_of(repository))
    claimed.ended("given up", FAULT)
    assert run(["ask", "x", "--model", "m", "--url", "127.0.0.1:1"]) == 1
    assert f"was given up: {FAULT}" in capsys.readouterr().err


def test_status_tells_what_failed_and_lists_what_was_stopped_when_asked(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim(repository).ended("given up", FAULT)
    assert run(["status"]) == 1
    said = capsys.readouterr()
    assert "given up" in said.out
    assert f"was given up: {FAULT}" in said.err
    assert run(["status", "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["health"], row["why"], row["grpc"], row["models"]) == ("given up", FAULT, None, {})
    claim(repository).ended("stopped")
    assert run(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == []
    for words in (["--all"], [str(repository)]):
        assert run(["status", *words, "--json"]) == 1
        (row,) = json.loads(capsys.readouterr().out)
        assert row["health"] == "stopped"
        assert abs(row["ended_unix_s"] - time.time()) < 60


@pytest.fixture
def two_models(tmp_path: Path) -> Path:
    """A repository with the vision models first and second, as `add-vision` writes them."""
    repo = tmp_path / "two"
    for name in ("first", "second"):
        file = save(classifier(3), tmp_path / f"{name}.onnx")
        assert run(["add-vision", name, str(file), "--target", "local", "--repo", str(repo)]) == 0
    return repo


def test_who_names_no_model_means_the_only_one_that_is_served(two_models: Path, http_port: int) -> None:
    with kept(two_models, record_of(two_models, http_port=http_port)), connect(two_models, None) as server:
        assert server.model(None, "vision") == "first"
        assert server.model("first", "vision") == "first"
        with pytest.raises(ServeError, match="has not loaded second") as refused:
            server.model("second", "vision")
        assert f"trtbuild serve {two_models} --detach --grpc-port 1" in refused.value.remedies[0]
    with connect(two_models, "127.0.0.1:1") as server, pytest.raises(ServeError, match="2 vision models"):
        server.model(None, "vision")  # no server runs that could say what it has loaded


def test_status_tells_what_is_not_loaded_from_what_is_not_ready(
    two_models: Path, http_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with kept(two_models, record_of(two_models, http_port=http_port)):
        capsys.readouterr()
        assert run(["status", str(two_models), "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        parts = ("", "_network", "_postprocess", "_preprocess")
        assert row["not_loaded"] == [f"second{part}" for part in parts]
        assert row["models"] == {f"first{part}": True for part in parts}
        shutil.rmtree(two_models / "first_network")
        assert run(["status", str(two_models), "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert row["models"] == {f"first{part}": part != "_network" for part in parts}
        assert run(["status", str(two_models)]) == 0
        told = " ".join(capsys.readouterr().out.split())  # a long cell is wrapped
        assert "not loaded: second, second_network, second_postprocess" in told


def test_stop_cleans_after_one_that_was_killed(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, "TRTBUILD_SERVER_ID": "trtbuild-left-"},
    )
    left(repository, record_of(repository, owner_pid=gone_pid(), server_id="trtbuild-left-"))
    assert run(["stop", str(repository)]) == 0
    server.wait(timeout=30)
    assert health(repository) == "stopped"
    assert run(["stop", str(repository)]) == 1
    assert "was stopped" in capsys.readouterr().err


def test_a_process_that_has_the_owners_pid_now_is_left_alone(repository: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        left(repository, record_of(repository, owner_pid=other.pid, owner_started_s=1.0))
        registry.stop(repository)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_change_of_a_served_repository_says_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    qwen = ["--model", "qwen-7b", "--quant", "awq"]
    assert run([*qwen, "--gpu", "l4", "--target", "engine", "--output", "r"]) == 0
    assert "a server of" not in capsys.readouterr().err
    with kept(tmp_path / "r", record_of(tmp_path / "r", grpc_port=8001)):
        for words in (["add", "r", "--with", "ocr"], ["remove", "ocr", "r"]):
            assert run(words) == 0
            said = capsys.readouterr().err
            assert f"a server of {tmp_path / 'r'} runs: it serves what it loaded at its start" in said
            assert f"trtbuild stop {tmp_path / 'r'}" in said
            assert "--grpc-port 8001" in said


def test_every_command_of_a_repository_takes_it_last_or_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    qwen = ["--model", "qwen-7b", "--quant", "awq", "--target", "engine"]
    assert run([*qwen, "--gpu", "l4", "--output", "r"]) == 0
    assert run(["add", "--repo", "r", "--with", "ocr"]) == 0
    assert run(["remove", "ocr", "--repo", "r"]) == 0
    assert run(["add-vision", "pages", "ocr", "r"]) == 0
    assert run(["list", "--repo", "r", "--json"]) == 0
    assert run(["list", "r", "--repo", "other"]) == 2
    capsys.readouterr()
    assert run(["remove", "r", "pages"]) == 1  # the wrong way round
    assert run(["add", "r", *qwen]) == 1
    assert f"trtbuild remove qwen-7b {tmp_path / 'r'}" in capsys.readouterr().err
