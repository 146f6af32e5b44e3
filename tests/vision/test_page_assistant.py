"""A page and a question to a streamed answer, through OCR and a language model of the same server."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from PIL import Image
from tests.support.pages import ENGLISH, draw, encoded, packaged

from trtbuild.catalog.vision import pipeline
from trtbuild.generate import generate
from trtbuild.prepare import prepare
from trtbuild.repository.assistant import NAME, write_assistant
from trtbuild.serve.server import start
from trtbuild.spec import DeploymentSpec, LlmSpec, Target, VisionSpec

EXAMPLES = Path(__file__).parents[2] / "clients" / "examples"
pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    packaged("rapidocr", pipeline("ocr").networks[0].file)
    repository = tmp_path_factory.mktemp("assistant") / "repository"
    llm = LlmSpec(model="smollm2-135m", quant="int4", concurrency=4)
    generate(prepare(DeploymentSpec(target=Target.LOCAL, models=(llm,), vision=(VisionSpec(),))), repository)
    write_assistant(repository, reader="ocr", llm="smollm2-135m", max_input_tokens=2048)
    with start(repository) as server:
        yield server.grpc_address


def ask(address: str, pictures: list[bytes]) -> list[list[str] | Exception]:
    """Pieces of each picture's answer, or its error; all are asked at once."""
    found: list[list[str] | Exception] = [[] for _ in pictures]
    ended: queue.Queue[int] = queue.Queue()

    def take(number: int) -> Any:
        def callback(result: Any, error: Any) -> None:
            pieces = found[number]
            if error is not None:
                found[number] = error
            elif not result.get_response().parameters["triton_final_response"].bool_param:
                assert isinstance(pieces, list)
                pieces.append(result.as_numpy("text_output").item().decode())
                return
            ended.put(number)

        return callback

    clients = [grpc.InferenceServerClient(address) for _ in pictures]
    for number, (client, picture) in enumerate(zip(clients, pictures, strict=True)):
        inputs = []
        for name, value in (("image", picture), ("question", b"What is it about?")):
            inputs.append(grpc.InferInput(name, [1], "BYTES"))
            inputs[-1].set_data_from_numpy(np.array([value], dtype=np.object_))
        inputs.append(grpc.InferInput("max_tokens", [1], "INT32"))
        inputs[-1].set_data_from_numpy(np.array([16], np.int32))
        client.start_stream(take(number))
        client.async_stream_infer(NAME, inputs, enable_empty_final_response=True)
    for _ in pictures:
        ended.get(timeout=120)
    for client in clients:
        client.stop_stream()
        client.close()
    return found


def test_answers_stream_and_a_bad_picture_spoils_no_other(address: str) -> None:
    page = encoded(draw(ENGLISH[:3]))
    blank = encoded(Image.new("RGB", (200, 100), "white"))
    first, bad, second, empty = ask(address, [page, b"no picture", page, blank])
    assert isinstance(first, list)
    assert len(first) > 1
    assert "".join(first).strip()
    assert isinstance(second, list)
    assert "no picture of a known format" in str(bad)
    assert empty == ["There is no text on the page."]


def test_shared_memory_is_refused_in_words_by_a_served_repository(address: str) -> None:
    """``trtbuild serve`` keeps that interface shut."""
    command = [sys.executable, str(EXAMPLES / "shared_memory.py"), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("the socket: ")
    assert done.stderr.startswith("error: ")
    assert "restricted" in done.stderr


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("ask_page", ["page.png", "What is it about?"], [], ""),
        ("ocr_then_ask", ["page.png"], ["smollm2-135m"], ""),
        ("streaming_chat", [], ["smollm2-135m"], " tokens, first after "),
        ("cancel", [], ["smollm2-135m"], "left after "),
        ("deadline", [], ["smollm2-135m"], "too late; until then: "),
        ("fallback", [], ["smollm2-135m", "smollm2-135m"], ""),
    ],
)
def test_examples_run_against_what_is_served(
    address: str, tmp_path: Path, name: str, before: list[str], after: list[str], said: str
) -> None:
    (tmp_path / "page.png").write_bytes(encoded(draw(ENGLISH[:3])))
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *before, address, *after]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
    assert said in done.stdout
