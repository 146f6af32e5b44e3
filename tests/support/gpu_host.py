"""A machine with a GPU and docker as a build sees it: fakes on PATH, and a hub on the loopback address.

The fetch is done by the real huggingface_hub; docker and TensorRT-LLM's tools are ``build_tools.py``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trtbuild.build.commands import Command

TOOL = Path(__file__).with_name("build_tools.py")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
_NVIDIA_SMI = """#!/bin/sh
case "$*" in
  *driver_version*) echo 590.44.01 ;;
  *name,memory.total*) echo "NVIDIA L4, 23034, {sm}" ;;
  *) echo {sm} ;;
esac
"""


def product_files(command: Command) -> dict[str, Any]:
    """What a good run of a command leaves: every pattern a file, JSON files with the facts, large enough."""
    documents: dict[str, dict[str, Any]] = {}
    for fact in command.facts:
        place = documents.setdefault(fact.file, {})
        *path, last = fact.path.split(".")
        for key in path:
            place = place.setdefault(key, {})
        place[last] = fact.value
    names = [pattern.replace("*", "model") for pattern in command.expects]
    files: dict[str, Any] = {
        name: json.dumps(documents.get(name, {"x": 1})) if name.endswith(".json") else "weights"
        for name in names
    }
    if command.least_bytes > 1 << 20:
        files[names[-1]] = {"size": command.least_bytes}
    return files


class GpuHost:
    """Fakes on PATH; ``calls`` is the file that gets one word a step."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, version: str = "1.2.1") -> None:
        self.folder = folder / "host"
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True)
        (self.folder / "state").mkdir()
        self.calls = self.folder / "calls"
        self.calls.touch()
        self._patch = monkeypatch
        for name in ("trtllm-build", "docker"):
            self.put(name, f'#!/bin/sh\nFAKE_NAME={name} exec {sys.executable} -S {TOOL} "$@"\n')
        self.gpu("8.9")
        self.environment = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "FAKE_CALLS": str(self.calls),
            "FAKE_VERSION": version,
            "FAKE_STATE": str(self.folder / "state"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(self.folder / "hf"),
        }
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        for name in ("FAKE_FAULT", "HF_HUB_OFFLINE", "HF_TOKEN"):
            monkeypatch.delenv(name, raising=False)

    def put(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def gpu(self, sm: str | None) -> None:
        """Puts a GPU into the machine, or takes it out."""
        self.put("nvidia-smi", "#!/bin/sh\nexit 9\n" if sm is None else _NVIDIA_SMI.format(sm=sm))

    def makes(self, commands: Sequence[Command]) -> None:
        """Tells the tools what a right product holds."""
        facts = {command.label: product_files(command) for command in commands}
        self._patch.setenv("FAKE_FACTS", json.dumps(facts))

    def fault(self, words: str | None) -> None:
        """``step:fault`` of ``build_tools.py``; None: everything works."""
        if words is None:
            self._patch.delenv("FAKE_FAULT", raising=False)
        else:
            self._patch.setenv("FAKE_FAULT", words)

    def steps(self) -> list[str]:
        """What ran since it was last asked."""
        found = self.calls.read_text().split()
        self.calls.write_text("")
        return found

    def docker_runs(self) -> list[dict[str, Any]]:
        """Image and options of each container that was run."""
        path = self.folder / "state" / "runs.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def hub(files: dict[str, bytes], *, commit: str = COMMIT) -> Iterator[tuple[str, list[str]]]:
    """A hub that has the same files in every repository; gives its address, and the paths asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing."""

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            asked.append(self.path)
            parts = self.path.split("?")[0].strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                repository = "/".join(parts[2:4])
                siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
                entries = [
                    {"type": "file", "path": name, "oid": name, "size": len(data)}
                    for name, data in files.items()
                ]
                answer = {"id": repository, "sha": commit, "siblings": siblings}
                body = json.dumps(entries if "tree" in parts else answer).encode()
                self._send(body, {"Content-Type": "application/json"})
            elif (name := parts[-1]) in files and "resolve" in parts:
                self._send(files[name], {"ETag": f'"{name}"', "X-Repo-Commit": commit})
            else:
                self.send_error(404)

        def _send(self, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(200)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
