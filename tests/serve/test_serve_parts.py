from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from trtbuild.errors import ServeError
from trtbuild.serve import backends, logs, room, shm, wheel
from trtbuild.serve.command import RESTRICTED, server_command, server_environment
from trtbuild.serve.lock import Lock
from trtbuild.serve.ports import ChosenPorts, Ports, choose_ports
from trtbuild.serve.process import is_alive, started_s
from trtbuild.serve.state import ServerRecord, StateFolder
from trtbuild.serve.wheel import find_wheel

RECORD = ServerRecord(
    repository="/r", owner_pid=1, owner_started_s=1.5, server_pid=2, server_started_s=2.5,
    server_id="trtbuild-x-", grpc_port=3, http_port=4, metrics_port=5, detached=False, ready=True, restarts=0,
    log="/l",
)  # fmt: skip


def test_three_different_free_ports() -> None:
    ports = choose_ports(Ports())
    assert len({ports.grpc, ports.http, ports.metrics}) == 3
    for port in (ports.grpc, ports.http, ports.metrics):
        with socket.create_server(("127.0.0.1", port)):  # it is free
            pass


def test_asked_ports_are_kept() -> None:
    free = choose_ports(Ports())
    chosen = choose_ports(Ports(http=free.http))
    assert chosen.http == free.http


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        (Ports(grpc=70000), "70000 is not a TCP port"),
        (Ports(grpc=-1), "-1 is not a TCP port"),
        (Ports(grpc=8001, http=8001), "asked for twice"),
    ],
)
def test_ports_that_cannot_be(ports: Ports, words: str) -> None:
    with pytest.raises(ServeError, match=words):
        choose_ports(ports)


def test_a_record_survives_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    assert state.read() is None
    state.write(RECORD)
    assert state.read() == RECORD
    for damaged in ('{"schema": 1}', "", "[]", '{"schema": 99, "pid": 1}'):
        (tmp_path / "server.json").write_text(damaged)
        assert state.read() is None


def test_two_paths_to_one_repository_have_one_state(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert StateFolder.of(tmp_path / "real").path == StateFolder.of(tmp_path / "link").path
    assert StateFolder.of(tmp_path / "real").path != StateFolder.of(tmp_path).path


_HOLDER = """
import sys
from pathlib import Path
from trtbuild.serve.lock import Lock
Lock(Path(sys.argv[1])).take()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_is_held_by_one_process_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        lock = Lock(path)
        assert lock.held_elsewhere()
        assert not lock.take()
        other.kill()
    assert lock.take()
    assert not lock.held_elsewhere()
    lock.release()


def test_a_process_is_known_by_pid_and_start() -> None:
    start = started_s(os.getpid())
    assert is_alive(os.getpid(), start)
    assert not is_alive(os.getpid(), start - 100)  # the pid was used again
    assert started_s(2**22 + 1) == 0


def test_only_our_own_regions_can_be_swept() -> None:
    for prefix in ("", "psm_", "triton"):
        with pytest.raises(ValueError, match="not a prefix of ours"):
            shm.sweep(prefix)


def test_a_full_shared_memory_is_said_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, count in (("llm", 1), ("ocr", 3)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(
            f'name: "{name}"\nbackend: "python"\ninstance_group {{ count: {count} kind: KIND_CPU }}\n'
        )
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.pbtxt").write_text("not a config")
    room.check_room(tmp_path)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda path: SimpleNamespace(free=2**20))
    # 4 processes of 1 MiB, and as much to grow
    with pytest.raises(ServeError, match=r"1\.0 MiB free, and the 4 Python processes of .* need 8 MiB"):
        room.check_room(tmp_path)


def test_a_full_state_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source))

    monkeypatch.setattr(backends.shutil, "copy2", full)
    with pytest.raises(ServeError, match="No space left") as caught:
        backends.assemble_backends(find_wheel(), tmp_path / "state" / "backends")
    assert str(tmp_path / "state") in caught.value.message
    assert "TRTBUILD_STATE" in str(caught.value.remedies)


def test_a_log_is_followed_into_that_of_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "server.log"
    log.write_text("one\ntwo\nthree\n")

    def restarted(seconds: float) -> None:
        with log.open("a") as file:
            file.write("the last\n")
        log.replace(tmp_path / "server.log.1")
        log.write_text("new\n")

    monkeypatch.setattr(logs.time, "sleep", restarted)
    lines = logs.followed(log, 2)
    assert [next(lines) for _ in range(4)] == ["two\n", "three\n", "the last\n", "new\n"]
    lines.close()


def test_the_reason_is_taken_out_of_tritons_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        'I1129 22:36:12.298140 22424 model_lifecycle.cc:472] "loading: a:1"\n'
        "E1129 22:36:12.456905 22424 model_lifecycle.cc:642] \"failed to load 'a' version 1: Internal: "
        "LoadRefused: parameter x is 'y'\\n\\nAt:\\n  /s/service.py(37): initialize\\n\"\n"
        "E1129 22:36:12.456905 22424 model_lifecycle.cc:13] \"Poll failed for model directory 'b': "
        'failed to open text file for read b/config.pbtxt: No such file or directory"\n'
        "+----+\n| x  |\n+----+\n\nerror: creating server: Internal - failed to load all models\n"
    )
    assert logs.failed_models(log) == {"a": "parameter x is 'y'"}
    assert any("Poll failed for model directory 'b'" in line for line in logs.errors(log))
    assert logs.tail(log, 2) == ["| x  |", "error: creating server: Internal - failed to load all models"]
    assert logs.tail(tmp_path / "missing") == []


def test_the_command_is_closed_to_the_network_and_to_changes() -> None:
    ports = ChosenPorts(grpc=1, http=2, metrics=3)
    command = server_command(
        find_wheel(), backends=Path("/b"), ports=ports, server_id="trtbuild-1-", exit_timeout_s=20
    )
    assert {f"--{kind}-address=127.0.0.1" for kind in ("grpc", "http", "metrics")} <= set(command)
    assert "--model-control-mode=none" in command
    for option in ("--grpc-restricted-protocol", "--http-restricted-api"):
        (value,) = [part for part in command if part.startswith(option)]
        assert value.startswith(f"{option}={RESTRICTED}:x-disabled=")


def test_the_environment_names_interpreter_and_libraries() -> None:
    ports = ChosenPorts(grpc=1, http=2, metrics=3)
    environment = server_environment(
        find_wheel(),
        ports=ports,
        server_id="trtbuild-1-",
        drain_file=Path("/d"),
        base={"PATH": "/bin", "A": "b"},
    )
    assert environment["PATH"] == f"{Path(sys.executable).parent}:/bin"
    assert "nvidia_pytriton.libs" in environment["LD_LIBRARY_PATH"]
    assert environment["TRTBUILD_GRPC_ADDRESS"] == "127.0.0.1:1"
    assert environment["A"] == "b"


def test_without_the_wheel_the_way_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ServeError, match="nvidia-pytriton is not installed") as caught:
        find_wheel()
    assert caught.value.remedies == ("pip install 'trtbuild[local]'",)


def test_a_python_without_wheels_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(tuple):  # type: ignore[type-arg]
        major, minor = 3, 13

    monkeypatch.setattr(wheel.sys, "version_info", Newer((3, 13, 0)))
    with pytest.raises(ServeError, match=r"This is Python 3\.13; .* needs numpy 1"):
        find_wheel()
