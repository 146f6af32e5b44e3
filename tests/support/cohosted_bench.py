"""OCR beside a language model on one local server: how well pages are read, what reading costs streams.

Run by ``scripts/bench-cohosted``; prints one table. CPU seconds are those of the window in which the pictures
are read, by the owner of the process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from PIL import Image
from tests.support.pages import (
    CHINESE,
    ENGLISH,
    HALVES,
    PAGE_PNG,
    draw,
    encoded,
    error_rate,
    page_png,
    side_by_side,
)
from tests.support.vision_client import VisionClient

from tritonstream import Client, TritonStreamError
from trtbuild.generate import generate
from trtbuild.prepare import prepare
from trtbuild.serve.server import Server, start
from trtbuild.spec import DeploymentSpec, LlmSpec, Target, VisionSpec

MODEL = "smollm2-135m"
_TOKENS = 100  # of each answer; a stream asks again until all pictures are read


def character_error_rates(client: VisionClient) -> dict[str, float]:
    """Of scikit-image's page.png (its whole lines) and three pages drawn here."""
    turned = draw(ENGLISH).rotate(5, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    pages = {
        "page.png": (PAGE_PNG, page_png()),
        "rotated 5 degrees": (ENGLISH, encoded(turned)),
        "two columns": (
            [*HALVES[0], *HALVES[1]],
            encoded(side_by_side([draw(half, size=22) for half in HALVES])),
        ),
        "Chinese": (CHINESE, encoded(draw(CHINESE))),
    }
    return {
        f"CER, {name}": round(error_rate(lines, client.read(data).text), 4)
        for name, (lines, data) in pages.items()
    }


def cpu_by_owner(server: Server) -> dict[str, float]:
    """CPU seconds so far: tritonserver, each stub and engine by its instance, and this client."""
    used = {"client": sum(psutil.Process().cpu_times()[:2])}
    root = psutil.Process(server.pid)
    for process in (root, *root.children(recursive=True)):
        words = process.cmdline()
        if process.pid == server.pid:
            name = "tritonserver"
        elif "triton_python_backend_stub" in words[0]:
            name = next(
                (
                    w
                    for w in words
                    if w.rpartition("_")[0] and w.rpartition("_")[2].isdigit() and "/" not in w
                ),
                "stub",
            )
        else:
            name = "engine worker"
        used[name] = used.get(name, 0.0) + sum(process.cpu_times()[:2])
    return used


def together(server: Server, *, streams: int, pictures: int, at_once: int) -> dict[str, Any]:
    """Reads pictures while streams decode; each answer must come whole."""
    question = [{"role": "user", "content": "Write a very long story about a lighthouse."}]
    page, over = encoded(draw(ENGLISH)), threading.Event()
    vision = VisionClient(server.grpc_address, server.metrics_address)
    sampling = {"max_tokens": _TOKENS, "temperature": 0.0}
    with Client(server.grpc_address) as client, ThreadPoolExecutor(streams + at_once) as pool:
        client.chat(MODEL, question, **sampling)  # warm

        def stream(_: int) -> tuple[int, int, int]:
            whole = broken = tokens = 0
            while not over.is_set():
                try:
                    with client.chat(MODEL, question, stream=True, **sampling) as answer:
                        text = "".join(answer.text_deltas())
                        done = answer.completion
                except TritonStreamError:
                    broken += 1
                    continue
                tokens += done.usage.completion_tokens or 0
                ended = done.finish_reason in ("stop", "length") and text == done.text and bool(text)
                whole, broken = whole + ended, broken + (not ended)
            return whole, broken, tokens

        def read(_: int) -> float | None:
            try:
                return error_rate(ENGLISH, vision.read(page).text)
            except Exception:
                return None

        running = [pool.submit(stream, i) for i in range(streams)]
        time.sleep(2)  # all streams decode; the window begins
        counted, cpu, begun_s = vision.counters("ocr_rec"), cpu_by_owner(server), time.monotonic()
        readings = list(pool.map(read, range(pictures)))
        took_s = time.monotonic() - begun_s
        after, counters = cpu_by_owner(server), vision.counters("ocr_rec")
        over.set()
        ended = [item.result() for item in running]
    vision.close()
    good = [item for item in readings if item is not None]
    spent = {name: round(after[name] - cpu.get(name, 0.0), 2) for name in sorted(after)}
    lines = int(counters["request_success"] - counted["request_success"])
    executions = int(counters["exec_count"] - counted["exec_count"])
    return {
        "streams": streams,
        "answers whole": sum(row[0] for row in ended),
        "answers broken": sum(row[1] for row in ended),
        "answers' tokens": sum(row[2] for row in ended),
        "pictures": pictures,
        "pictures failed": pictures - len(good),
        "highest CER of a picture": round(max(good, default=1.0), 4),
        "pictures read in, s": round(took_s, 2),
        **{f"CPU s, {name}": value for name, value in spent.items()},
        "CPU s, sum": round(sum(spent.values()), 2),
        "lines recognised (ocr_rec, nv_inference_request_success)": lines,
        "executions (ocr_rec, nv_inference_exec_count)": executions,
        "lines an execution": round(lines / max(executions, 1), 2),
    }


def main() -> None:
    """Builds the repository in a folder of its own, serves it, and measures."""
    parser = argparse.ArgumentParser(prog="scripts/bench-cohosted")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--pictures", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4, help="pictures in flight")
    asked = parser.parse_args()
    spec = DeploymentSpec(
        target=Target.LOCAL, models=(LlmSpec(model=MODEL, quant="int4"),), vision=(VisionSpec(),)
    )
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "model_repo"
        _note("generating the repository")
        generate(prepare(spec), repository)
        _note("starting the server")
        with start(repository) as server:
            client = VisionClient(server.grpc_address, server.metrics_address)
            _note("reading four pages")
            result: dict[str, Any] = character_error_rates(client)
            client.close()
            _note("reading pictures while streams decode")
            result |= together(server, streams=asked.streams, pictures=asked.pictures, at_once=asked.at_once)
    width = max(map(len, result))
    for name, value in result.items():
        print(f"{name:<{width}}  {value:>8}")


def _note(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
