"""The examples run, against fake servers, and say what they should."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tritonstream import Client, ModelKind, UsageError
from tritonstream.testing import FakeModel, FakePage, Fault

EXAMPLES = Path(__file__).parents[2] / "clients" / "examples"


@pytest.fixture
def example(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs an example's main with arguments; returns what it printed."""

    def run(name: str, *args: str) -> str:
        runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](*args)
        return capsys.readouterr().out

    return run


def test_streaming_chat(example: Any, serve: Any) -> None:
    printed = example("streaming_chat", serve(llm=FakeModel()).url, "llm")
    assert printed.startswith("Hello, world!\n[stop] 7 + 4 tokens, first after ")


def test_concurrent_requests(example: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=["one", "two"], first_token_s=0.1))
    printed = example("concurrent_requests", server.url, "llm")
    assert printed.startswith("200 answers, 400 tokens in ")
    assert len(server.served) == 200


def test_cancel(example: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=["x"] * 300, between_tokens_s=0.01))
    printed = example("cancel", server.url, "llm").splitlines()
    assert printed[1] == "left after 'x'"
    assert printed[2].startswith("cancelled after ")
    assert server.wait_for(lambda: [served.end for served in server.served] == ["cancelled"] * 2)


@pytest.mark.parametrize(
    ("between_s", "expected"), [(0.0, "in time: 'xxx'"), (0.4, "too late; until then: 'x")]
)
def test_deadline(example: Any, serve: Any, between_s: float, expected: str) -> None:
    server = serve(llm=FakeModel(reply=["x"] * 3, between_tokens_s=between_s))
    assert example("deadline", server.url, "llm").startswith(expected)


def test_fallback(example: Any, serve: Any) -> None:
    server = serve(big=FakeModel(), small=FakeModel(reply=["brief"]))
    assert example("fallback", server.url, "big", "small") == "Hello, world!\n"
    server.models["big"].faults = [Fault("stall", 0)]
    assert example("fallback", server.url, "big", "small") == "brief [fast mode]\n"
    server.models["small"].ready = False
    assert example("fallback", server.url, "big", "small").startswith("Please come back later")


def test_ocr_then_ask(example: Any, serve: Any, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    picture.write_bytes(b"\x89PNG...")
    server = serve(ocr=FakeModel.ocr(FakePage()), llm=FakeModel())
    assert example("ocr_then_ask", str(picture), server.url, "llm") == "0.90  hello\nHello, world!\n"
    assert "hello" in server.served[1].inputs["messages"]


def test_shared_memory(example: Any, serve: Any) -> None:
    model = FakeModel(
        kind=ModelKind.OTHER,
        decoupled=False,
        tensors={"inputs": "x:FP32:3,-1,-1!", "outputs": "logits:FP32:-1"},
        compute=lambda arrays: {"logits": np.zeros((1, 5), np.float32)},
    )
    server = serve(ocr_det=model)
    printed = example("shared_memory", server.url)
    assert "the socket" in printed
    assert "shared memory" in printed
    assert server.regions == {}


def test_ask_page(example: Any, serve: Any, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    picture.write_bytes(b"\x89PNG...")
    model = FakeModel(
        kind=ModelKind.OTHER,
        max_batch_size=0,
        tensors={
            "inputs": "image:STRING:1! question:STRING:1! max_tokens:INT32",
            "outputs": "text_output:STRING:1",
        },
        compute=lambda arrays: {"text_output": np.array([arrays["question"].item()], dtype=np.object_)},
    )
    server = serve(page_assistant=model)
    assert example("ask_page", str(picture), "What is it?", server.url) == "What is it?\n"


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_without_its_model_says_so(serve: Any, tmp_path: Path, name: str) -> None:
    if name == "without_a_server":
        return
    picture = tmp_path / "page.png"
    picture.write_bytes(b"\x89PNG...")
    before = {"ask_page": [picture, "What?"], "ocr_then_ask": [picture], "see_pictures": [tmp_path]}
    command = [sys.executable, EXAMPLES / f"{name}.py", *before.get(name, []), serve().url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    told = done.stdout + done.stderr
    assert "Traceback" not in told
    assert "is not found" in told
    assert done.returncode == (0 if name in ("fallback", "concurrent_requests") else 1)  # they go on


@pytest.mark.parametrize("name", ["ask_page", "ocr_then_ask", "see_pictures"])
@pytest.mark.parametrize("arguments", [[], ["nothing/there", "What?"]])
def test_an_example_of_a_file_says_what_it_needs(serve: Any, name: str, arguments: list[str]) -> None:
    server = serve(ocr=FakeModel.ocr(FakePage()))
    given = [*arguments[: 2 if name == "ask_page" else 1], *([server.url] if arguments else [])]
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *given], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert ("nothing/there" if arguments else f"usage: {name}.py") in done.stderr


def test_see_pictures(example: Any, serve: Any, tmp_path: Path) -> None:
    for name, colour in (("a.png", "white"), ("b.JPEG", "black")):
        Image.new("RGB", (40, 30), colour).save(tmp_path / name)

    def boxes(arrays: dict[str, Any]) -> dict[str, Any]:
        count = len(arrays["image"])
        return {
            "label": np.full((count, 1), b"cat", dtype=np.object_),
            "class_id": np.full((count, 1), 15, np.int32),
            "score": np.full((count, 1), 0.5, np.float32),
            "box": np.full((count, 1, 4), (1, 2, 30, 20), np.float32),
            "count": np.ones((count, 1), np.int32),
            "picture_size": np.full((count, 2), (40, 30), np.int32),
        }

    detector = FakeModel(
        kind=ModelKind.OTHER,
        decoupled=False,
        max_batch_size=4,
        tensors={
            "inputs": "image:STRING:1!",
            "outputs": "label:STRING:-1 class_id:INT32:-1 score:FP32:-1 box:FP32:-1,4 count:INT32:1 "
            "picture_size:INT32:2",
        },
        compute=boxes,
    )
    url = serve(detector=detector).url
    for _ in range(2):  # what it drew is no picture to look at the next time
        printed = example("see_pictures", str(tmp_path), url, "detector")
        assert printed == "a.png: cat\nb.JPEG: cat\n"
    assert [row["bbox"] for row in json.loads((tmp_path / "boxes.json").read_text())] == [[1, 2, 29, 18]] * 2
    assert (tmp_path / "a.boxes.png").is_file()


def test_one_empty_picture_of_a_list_fails_alone(serve: Any) -> None:
    server = serve(ocr=FakeModel.ocr(FakePage()))
    with Client(server.url) as client:
        found = client.ocr("ocr", [b"", b"a picture", "nothing.png"], return_errors=True)
        assert [type(one).__name__ for one in found] == ["UsageError", "OcrResult", "UsageError"]
        assert "empty" in str(found[0])
        assert all(isinstance(one, UsageError) for one in client.ocr("ocr", [b"", b""], return_errors=True))
        with pytest.raises(UsageError, match="empty"):
            client.ocr("ocr", [b"", b"a picture"])


def test_without_a_server(example: Any) -> None:
    assert example("without_a_server") == "both cases work\n"


def test_every_example_is_listed_and_tested() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    listed = (EXAMPLES / "README.md").read_text()
    tested = Path(__file__).read_text()
    for name in names:
        assert f"`{name}.py`" in listed
        assert f'example("{name}"' in tested
