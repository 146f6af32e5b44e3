"""The command line against a real server: README's commands and program, chat on a terminal, serve, stop."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from trtbuild.cli.demo import draw_page
from trtbuild.verify.page import PAGE

pytestmark = pytest.mark.server

README = Path(__file__).resolve().parents[2] / "README.md"
DEADLINE_S = 280


@dataclass(frozen=True)
class Bench:
    """A folder to work in with a state root of its own, and ``my_repo`` served there."""

    folder: Path
    environment: dict[str, str]

    def run(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trtbuild", *args],
            capture_output=True, text=True, input=stdin, cwd=self.folder, env=self.environment,
            timeout=DEADLINE_S, check=False,
        )  # fmt: skip

    def popen(self, *args: str, under: Sequence[str] = (), **options: object) -> subprocess.Popen[bytes]:
        command = [*under, sys.executable, "-m", "trtbuild", *args]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **options)


def make_bench(folder: Path) -> Bench:
    return Bench(folder, {**os.environ, "TRTBUILD_STATE": str(folder / "state"), "PYTHONUNBUFFERED": "1"})


def readme_commands() -> list[str]:
    """The lines of README's blocks that begin with trtbuild and come before the server is stopped."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    block = next(block for block in blocks if "trtbuild serve" in block)
    return [line for line in block.splitlines() if line.startswith("trtbuild ")]


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Iterator[Bench]:
    """README's repository, built and served by README's own commands (with a free port for 8001)."""
    made = make_bench(tmp_path_factory.mktemp("bench"))
    try:
        _build_and_serve(made)
        yield made
    finally:
        made.run("stop", "--all")


def _build_and_serve(made: Bench) -> None:
    commands = {line.split()[1]: line.split()[1:] for line in readme_commands()}
    built = made.run(*next(words for first, words in commands.items() if first.startswith("--model")))
    assert built.returncode == 0, built.stderr
    served = made.run(*[word for word in commands["serve"] if word not in ("--grpc-port", "8001")])
    assert served.returncode == 0, served.stderr


def address(bench: Bench) -> str:
    (server,) = json.loads(bench.run("status", "--json").stdout)
    return str(server["grpc"])


def test_readme_asks(bench):
    (line,) = (line for line in readme_commands() if line.startswith("trtbuild ask"))
    question = re.search(r'"(.*)"', line)
    assert question is not None
    done = bench.run("ask", question[1], "--max-tokens", "24")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 5


def test_readme_reads_a_page_and_draws_its_boxes(bench):
    draw_page(bench.folder / "page.png")
    (line,) = (line for line in readme_commands() if line.startswith("trtbuild ocr"))
    done = bench.run(*line.split()[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(PAGE)
    assert (bench.folder / "boxes.png").stat().st_size > 0


def test_readme_program_runs(bench):
    (program,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    program = program.replace("127.0.0.1:8001", address(bench))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\n(stop|length), \d+ tokens\n$", done.stdout)


def test_ask_counts_what_it_asked_for(bench):
    answer = json.loads(bench.run("ask", "Count.", "--max-tokens", "5", "--json").stdout)
    assert (answer["completion_tokens"], answer["finish_reason"]) == (5, "length")


def test_status_names_every_model(bench):
    (server,) = json.loads(bench.run("status", "--json").stdout)
    assert server["health"] == "ready"
    assert set(server["models"]) == {
        "smollm2-135m", "smollm2-135m_engine", "smollm2-135m_ensemble", "smollm2-135m_preprocess",
        "smollm2-135m_postprocess", "ocr", "ocr_det", "ocr_cls", "ocr_rec",
    }  # fmt: skip
    assert all(server["models"].values())


def test_a_prompt_longer_than_planned_is_refused_and_not_cut(bench):
    done = bench.run("ask", "word " * 4000)
    assert done.returncode == 1
    assert "2048" in done.stderr


def test_a_second_server_of_the_same_repository_is_refused(bench):
    done = bench.run("serve", "my_repo", "--detach")
    assert done.returncode == 1
    assert "served already" in done.stderr


def test_an_unknown_model_is_named(bench):
    done = bench.run("ask", "x", "--model", "nobody")
    assert done.returncode == 1
    assert "nobody" in done.stderr


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, bench: Bench, *args: str) -> None:
        self._master, slave = pty.openpty()
        self.process = bench.popen(*args, under=("setsid", "--ctty"), stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, pattern: str) -> str:
        """Reads until the pattern is there; what came up to its end is taken."""
        deadline = time.monotonic() + DEADLINE_S
        while (match := re.search(pattern, self.seen)) is None:
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.seen!r}"
            if select.select([self._master], [], [], 1.0)[0]:
                self.seen += os.read(self._master, 4096).decode(errors="replace")
        taken, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return taken

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(bench) -> Iterator[Terminal]:
    made = Terminal(bench, "chat", "--max-tokens", "400", "--temperature", "0")
    yield made
    made.close()


@pytest.mark.parametrize("how", ["\x03", "/stop\n"])
def test_chat_stops_an_answer_and_goes_on(terminal, how):
    terminal.wait_for("> ")
    terminal.type("Write a very long story about a lighthouse.\n")
    terminal.wait_for(r"lighthouse\.\r\n(?s:.{40})")  # the answer is coming
    terminal.type(how)
    terminal.wait_for(r"\(stopped\)")
    terminal.wait_for("> ")
    terminal.type("/clear\n")
    terminal.wait_for("> ")
    terminal.type("Say yes.\n")
    terminal.wait_for(r"Say yes\.\r\n(?s:.+?)> ")
    terminal.type("/stop\n")
    assert terminal.process.wait(timeout=DEADLINE_S) == 0


def test_chat_says_what_is_no_command_and_leaves_at_the_end_of_input(terminal):
    terminal.wait_for("> ")
    terminal.type("/nonsense\n")
    terminal.wait_for("/nonsense is not a command; /help lists them")
    terminal.wait_for("> ")
    terminal.type("\x03")
    terminal.wait_for("Ctrl-D or /stop leaves")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.process.wait(timeout=DEADLINE_S) == 0


def test_stop_leaves_nothing_behind(bench):
    (server,) = json.loads(bench.run("status", "--json").stdout)
    record = next((bench.folder / "state" / "servers").glob("*/server.json"))
    prefix = json.loads(record.read_text())["server_id"]
    assert list(Path("/dev/shm").glob(f"{prefix}*"))
    done = bench.run("stop")
    assert done.returncode == 0, done.stderr
    assert not Path(f"/proc/{server['pid']}").exists()
    assert not list(Path("/dev/shm").glob(f"{prefix}*"))
    assert bench.run("status").returncode == 1
    assert bench.run("logs", "my_repo", "-n", "3").stdout.count("\n") == 3


def test_serve_in_the_foreground_stops_on_ctrl_c(bench):
    process = bench.popen("serve", "my_repo", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"gRPC     127.0.0.1:")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert b"Traceback" not in errors
    assert bench.run("status").returncode == 1


@pytest.mark.slow
def test_the_quickstart_runs_through_and_leaves_nothing(tmp_path):
    fresh = make_bench(tmp_path)
    done = fresh.run("demo")
    assert done.returncode == 0, done.stderr
    for line in PAGE:
        assert line in done.stdout
    assert re.search(r"\(\d+ tokens, the first after ", done.stderr)
    assert re.search(r"smollm2-135m +[\d.]+ [MG]iB +[\d.]+ [MG]iB", done.stdout)  # planned beside used
    assert fresh.run("status").returncode == 1


@pytest.mark.slow
def test_the_quickstart_keeps_its_server_when_asked(tmp_path):
    fresh = make_bench(tmp_path)
    try:
        done = fresh.run("demo", "--keep", "--without-ocr")
        assert done.returncode == 0, done.stderr
        assert "trtbuild chat" in done.stdout
        assert fresh.run("ask", "Hello", "--max-tokens", "3").returncode == 0
    finally:
        assert fresh.run("stop", "--all").returncode == 0
