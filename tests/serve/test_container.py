"""``trtbuild serve`` for a GPU: the container, what is watched, and how it ends. docker is a fake."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.plans import llm_plan, plan_of, spec_of

from trtbuild.cli import run
from trtbuild.errors import ServeError
from trtbuild.plan.model import Plan
from trtbuild.repository.writer import write_repository
from trtbuild.serve import container, registry, watch
from trtbuild.serve.ports import Ports
from trtbuild.serve.server import claim, launch, start
from trtbuild.serve.supervise import ServeEvent, serve_forever
from trtbuild.spec import Target

DOCKER = Path(__file__).parents[1] / "support" / "docker_server.py"
SMI = '#!/bin/sh\ncase "$*" in *name,*) echo "NVIDIA L4, 23034, 8.9" ;; *) echo 8.9 ;; esac\n'


class Host:
    """docker and nvidia-smi on PATH, and a repository whose engines are built."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin, self.state, self.repo = folder / "bin", folder / "docker", folder / "repo"
        self.bin.mkdir()
        self.state.mkdir()
        self.put("docker", f'#!/bin/sh\nexec {sys.executable} -S {DOCKER} "$@"\n')
        self.put("nvidia-smi", SMI)
        monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_STATE", str(self.state))
        monkeypatch.setenv("TRTBUILD_STATE", str(folder / "state"))
        monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)

    def put(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def write(self, plan: Plan) -> Path:
        write_repository(plan, spec_of(*plan.models), self.repo, text_assets={}, weights={})
        for llm in plan.llms:
            loaded = "checkpoint" if plan.target is Target.LLMAPI else ""
            for folder, name in ((f"{llm.name}_engine/1/{loaded}", "config.json"),
                                 (f"{llm.name}/1/tokenizer", "tokenizer.json")):  # fmt: skip
                (self.repo / folder).mkdir(parents=True, exist_ok=True)
                (self.repo / folder / name).write_text("{}")
        return self.repo

    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.state / "runs.jsonl").read_text().splitlines()]

    def asked(self) -> list[str]:
        path = self.state / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def alive(self) -> list[int]:
        """Processes of containers that run."""
        pids = [int(path.read_text()) for path in self.state.glob("*.pid")]
        return [pid for pid in pids if psutil.pid_exists(pid)]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host(tmp_path, monkeypatch)
    yield host
    for pid in host.alive():
        os.kill(pid, signal.SIGKILL)


def until(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.05)


def environment(options: dict[str, list[str]]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in options["-e"])


def test_the_container_is_the_plans_and_ends_with_the_server(host: Host) -> None:
    host.write(plan_of(llm_plan()))
    with start(host.repo) as server:
        record = server.record
        (made,) = host.runs()
        assert made["image"] == "trtbuild-tritonserver:26.07"
        assert (
            (host.state / "Dockerfile").read_text().splitlines()[-1]
        )  # built once, from the repository's own
        options = made["options"]
        assert options["--name"] == [record.server_id.rstrip("-")]
        assert options["--gpus"] == ["all"]
        assert options["--user"] == [f"{os.getuid()}:{os.getgid()}"]
        assert options["--stop-timeout"] == ["60"]
        assert int(options["--shm-size"][0]) > 256 << 20
        assert options["-v"] == [f"{host.repo}:/repository:ro"]
        ports = (record.http_port, record.grpc_port, record.metrics_port)
        assert options["-p"] == [f"127.0.0.1:{port}:{port}" for port in ports]
        assert environment(options)["TRTBUILD_GRPC_ADDRESS"] == f"127.0.0.1:{record.grpc_port}"
        command = made["command"]
        assert command[0] == "/opt/tritonserver/bin/tritonserver"
        assert "--exit-timeout-secs=30" in command
        assert "--backend-config=python,thread-pool-size=32" in command
        assert f"--backend-config=python,shm-region-prefix-name={record.server_id}" in command
        assert any(
            word.startswith("--grpc-restricted-protocol=model-repository,shared-memory") for word in command
        )
    assert (host.state / "stopped").exists()  # it was asked to stop, not killed
    assert host.alive() == []


@pytest.mark.parametrize("kind", ["several", "split", "llmapi", "mps"])
def test_processes_and_environment_follow_the_plan(
    host: Host, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {
        "several": plan_of(llm_plan("a"), llm_plan("b")),
        "split": plan_of(llm_plan(tp=2)),
        "llmapi": plan_of(llm_plan(quant="fp16"), target=Target.LLMAPI),
        "mps": plan_of(llm_plan()),
    }
    if kind == "mps":
        (tmp_path / "mps").mkdir()
        (tmp_path / "mps/control").touch()
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "mps"))
    host.write(plans[kind])
    with start(host.repo):
        (made,) = host.runs()
    options, command = made["options"], made["command"]
    assert ("TRTLLM_ORCHESTRATOR" in environment(options)) is (kind == "several")
    assert (command[0] == "mpirun") is (kind == "split")
    assert command.count("/opt/tritonserver/bin/tritonserver") == (2 if kind == "split" else 1)
    if kind == "mps":
        assert options["--ipc"] == ["host"]
        assert environment(options)["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path / "mps")


def served(host: Host, events: list[ServeEvent], end: Callable[[], bool], **options: Any) -> None:
    """Serves in the main thread until a condition holds; a thread sends the signal."""

    def stop() -> None:
        until(end)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        serve_forever(host.repo, on_event=events.append, **options)
    finally:
        thread.join()


def test_fronts_are_warmed_and_a_front_that_fails_is_started_again(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PROBE_EVERY_S", 0.0)
    monkeypatch.setattr(watch, "PROBE_TIMEOUT_S", 5.0)
    monkeypatch.setattr("trtbuild.serve.supervise.LOOK_EVERY_S", 0.05)
    host.write(plan_of(llm_plan(), container="26.07"))
    monkeypatch.setattr(watch, "engines_of", lambda _: [])  # the engine's own probe has tests of its own
    events: list[ServeEvent] = []
    ready = [0]

    def end() -> bool:
        now = sum(event.kind == "ready" for event in events)
        if now == 1 and not ready[0]:
            (host.state / "silent").touch()
            ready[0] = 1
        if any(event.kind == "failed" for event in events):
            (host.state / "silent").unlink(missing_ok=True)
        return now == 2

    served(host, events, end, grace_s=1.0)
    assert (
        host.asked()[0] == 'qwen-7b {"text_input": "a", "max_tokens": 1}'
    )  # warmed before it was called ready
    failed = next(event for event in events if event.kind == "failed")
    assert failed.message.startswith("3 times in a row: qwen-7b does not answer")
    assert len(host.runs()) == 2
    assert host.alive() == []


def test_a_server_that_cannot_load_says_why_in_the_models_own_words(host: Host) -> None:
    host.write(plan_of(llm_plan()))
    (host.state / "broken").touch()
    with pytest.raises(ServeError, match=r"failed to load .qwen-7b_engine. version 1: no"):
        start(host.repo)
    assert host.alive() == []


def test_engines_that_are_missing_are_named_before_docker_is_asked(host: Host) -> None:
    host.write(plan_of(llm_plan()))
    (host.repo / "qwen-7b_engine/1/config.json").unlink()
    with pytest.raises(ServeError, match=r"missing: qwen-7b_engine/1/config\.json.*build_engines"):
        start(host.repo)
    assert not (host.state / "runs.jsonl").exists()


def test_a_container_whose_client_was_killed_is_removed_by_the_next_server(host: Host) -> None:
    host.write(plan_of(llm_plan()))
    claimed = claim(host.repo)
    server = launch(claimed, ports=Ports(), grace_s=1.0)
    server.wait_ready(30.0)
    name = container.container_name(server.record.server_id)
    claimed.lock.release()  # as if this process were gone; its container goes on
    with start(host.repo):
        assert f"rm --force {name}" in (host.state / "docker.log").read_text()
        assert len(host.alive()) == 1
    server.wait(5.0)


@pytest.mark.parametrize("lack", ["gpu", "docker", "answer", "script"])
def test_what_the_machine_lacks_is_said(
    host: Host, lack: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.write(plan_of(llm_plan()))
    if lack == "gpu":
        host.put("nvidia-smi", "#!/bin/sh\nexit 9\n")
    elif lack == "docker":
        (host.bin / "docker").unlink()
        monkeypatch.setenv("PATH", f"{host.bin}:/nowhere")
        host.put("nvidia-smi", SMI.replace("/bin/sh", "/bin/sh"))
    elif lack == "answer":
        host.put("docker", "#!/bin/sh\necho permission denied >&2\nexit 1\n")
    else:
        (host.repo / "launch.sh").unlink()
    assert run(["serve", str(host.repo)]) == 1
    error = capsys.readouterr().err
    words = {
        "gpu": "shows none",
        "docker": "no docker on PATH",
        "answer": "permission denied",
        "script": "launch.sh",
    }
    assert words[lack] in error
    assert "Traceback" not in error


def test_a_detached_server_is_found_and_stopped(host: Host) -> None:
    host.write(plan_of(llm_plan()))
    record = registry.start_detached(host.repo)
    try:
        assert record.on_gpu
        assert registry.status(host.repo).health == "ready"
    finally:
        registry.stop(host.repo)
    assert host.alive() == []
    assert registry.running() == []
