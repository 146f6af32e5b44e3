#!/usr/bin/env python3
"""Stands for docker where it runs a tritonserver: takes docker's own arguments, and serves HTTP as one would.

FAKE_STATE: folder in which calls, images and running containers are noted. A file ``silent`` in it makes the
models stop answering, ``broken`` makes the server end while it loads.
"""

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STATE = Path(os.environ["FAKE_STATE"])
FLAGS = {"--rm", "--init"}
VALUED = {
    "--name",
    "--gpus",
    "--ulimit",
    "--stop-timeout",
    "--shm-size",
    "--user",
    "--ipc",
    "-e",
    "-v",
    "-w",
    "-p",
}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(b"" if "metrics" in self.path else b"{}")

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        with (STATE / "asked").open("a") as asked:
            asked.write(self.path.split("/")[3] + " " + self.rfile.read(length).decode() + "\n")
        if (STATE / "silent").exists():
            self.send_error(500, "the engine failed")
            return
        self.answer(b'data: {"text_output": "x"}\n\n')

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def run(words):
    options = {}
    while words[0].startswith("-"):
        flag, equals, value = words[0].partition("=")
        if flag in FLAGS:
            words = words[1:]
            continue
        if flag not in VALUED:
            sys.exit(f"unknown flag: {flag}")
        options.setdefault(flag, []).append(value if equals else words[1])
        words = words[1 if equals else 2 :]
    with (STATE / "runs.jsonl").open("a") as runs:
        runs.write(json.dumps({"options": options, "image": words[0], "command": words[1:]}) + "\n")
    print("== a container's greeting ==", flush=True)
    if (STATE / "broken").exists():
        sys.exit(
            "E0101 00:00:00.000000 1 model_lifecycle.cc:654] failed to load 'qwen-7b_engine' version 1: no"
        )
    (STATE / f"{options['--name'][0]}.pid").write_text(str(os.getpid()))
    port = int(next(word.split("=")[1] for word in words if word.startswith("--http-port=")))
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    (STATE / "stopped").touch()


def main(words):
    with (STATE / "docker.log").open("a") as log:
        log.write(" ".join(words[:3]) + "\n")
    images = STATE / "images"
    if words[0] == "image":
        sys.exit(not (images.exists() and words[-1] in images.read_text().split()))
    if words[0] == "build":
        (STATE / "Dockerfile").write_text(sys.stdin.read())
        with images.open("a") as file:
            file.write(words[2] + "\n")
    elif words[0] == "rm":
        path = STATE / f"{words[-1]}.pid"
        if path.exists():
            os.kill(int(path.read_text()), signal.SIGKILL)
            path.unlink()
    elif words[0] == "run":
        run(words[1:])


main(sys.argv[1:])
