"""Plain tensors, pictures, and shared memory."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tritonstream import ModelKind, OcrLine, ProtocolError, UnsupportedError, UsageError
from tritonstream.testing import FakeModel, FakePage

LINES = [
    ("Größe: 5 µm", 0.97, ((1, 2), (30, 2), (30, 12), (1, 12))),
    ("第二行", 0.5, ((1, 20), (30, 20), (30, 32), (1, 32))),
]


def ocr_model(**options: Any) -> FakeModel:
    return FakeModel.ocr(FakePage(LINES), **options)


def png(array: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return buffer.getvalue()


def test_ocr_gives_typed_lines(run: Any, serve: Any) -> None:
    server = serve(ocr=ocr_model())
    picture = png(np.zeros((40, 50, 3), np.uint8))

    async def body(client: Any) -> None:
        result = await client.ocr("ocr", picture)
        assert result.text == "Größe: 5 µm\n第二行"
        assert result.lines[1] == OcrLine(
            "第二行", 0.5, ((1.0, 20.0), (30.0, 20.0), (30.0, 32.0), (1.0, 32.0))
        )
        assert json.loads(result.to_json())["lines"][0]["text"] == "Größe: 5 µm"
        drawn = result.draw()
        assert drawn.size == (50, 40)
        assert drawn.getpixel((15, 2)) == (220, 30, 30)

    run(body, server.url)


def test_pictures_come_in_all_forms(run: Any, serve: Any, tmp_path: Path) -> None:
    server = serve(ocr=ocr_model())
    colours = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    path = tmp_path / "a.png"
    path.write_bytes(png(colours))
    forms: list[Any] = [
        colours,
        colours[:, ::-1][:, ::-1],  # not contiguous
        colours[:, :, 0],
        np.concatenate([colours, colours[:, :, :1]], axis=2),
        path,
        str(path),
        bytearray(path.read_bytes()),
        memoryview(path.read_bytes()),
        Image.fromarray(colours),
    ]

    async def body(client: Any) -> None:
        for form in forms:
            await client.ocr("ocr", form)

    run(body, server.url)
    sent = [np.asarray(Image.open(io.BytesIO(served.inputs["image"]))) for served in server.served]
    assert all(np.array_equal(sent[at], colours) for at in (0, 1, 4, 5, 6, 7, 8))
    assert np.array_equal(sent[2], colours[:, :, 0])
    assert sent[3].shape == (4, 6, 4)


@pytest.mark.parametrize(
    "picture",
    [
        b"",
        5,
        np.zeros((2, 2), np.float32),
        np.zeros((0, 2), np.uint8),
        np.zeros((2, 2, 2), np.uint8),
        "none.png",
    ],
)
def test_what_is_no_picture_is_refused(run: Any, serve: Any, picture: Any) -> None:
    server = serve(ocr=ocr_model())

    async def body(client: Any) -> None:
        with pytest.raises(UsageError):
            await client.ocr("ocr", picture)

    run(body, server.url)


def test_a_language_model_does_not_read_pictures_and_the_other_way_round(run: Any, serve: Any) -> None:
    server = serve(ocr=ocr_model(), llm=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises(UnsupportedError, match="does not read text"):
            await client.ocr("llm", b"x")
        with pytest.raises(UnsupportedError, match="infer"):
            await client.generate("ocr", "x")

    run(body, server.url)


def doubling(**options: Any) -> FakeModel:
    """A model with x FP32 [-1, 3] → y, twice as much; at most 4 a batch."""
    return FakeModel(
        kind=ModelKind.OTHER,
        decoupled=False,
        max_batch_size=4,
        tensors={"inputs": "x:FP32:3! name:STRING", "outputs": "y:FP32:3 name:STRING"},
        compute=lambda arrays: {
            "y": arrays["x"] * 2,
            **({"name": arrays["name"]} if "name" in arrays else {}),
        },
        **options,
    )


def test_infer_takes_arrays_and_splits_batches(run: Any, serve: Any) -> None:
    server = serve(double=doubling())
    x = np.arange(30, dtype=np.float32).reshape(10, 3)

    async def body(client: Any) -> None:
        assert np.array_equal((await client.infer("double", {"x": x}))["y"], x * 2)
        assert np.array_equal((await client.infer("double", {"x": x[0]}))["y"], [x[0] * 2])
        assert np.array_equal((await client.infer("double", {"x": [1.0, 2.0, 3.0]}))["y"], [[2, 4, 6]])
        named = await client.infer("double", {"x": x[:1], "name": "Ü"})
        assert named["name"].tolist() == [["Ü".encode()]]
        assert list(await client.infer("double", {"x": x[:1], "name": "Ü"}, outputs=["name"])) == ["name"]

    run(body, server.url)
    assert sorted(served.shapes["x"] for served in server.served[:3]) == [[2, 3], [4, 3], [4, 3]]


@pytest.mark.parametrize(
    ("inputs", "params", "message"),
    [
        ({}, {}, "needs the input x"),
        ({"x": np.zeros((1, 4), np.float32)}, {}, r"has shape \[3\]"),
        ({"x": np.zeros((1, 3), np.complex64)}, {}, "cannot become"),
        ({"x": ["a", "b", "c"]}, {}, "FP32"),
        ({"x": np.zeros((1, 3), np.float32), "z": 1}, {}, "no input 'z'"),
        ({"x": np.zeros((1, 3), np.float32)}, {"outputs": ["q"]}, "no output 'q'"),
        ({"x": np.zeros((1, 3), np.float32)}, {"priority": 1}, "0 priority levels"),
        ({"x": np.zeros((1, 3), np.float32)}, {"output": ["y"]}, "did you mean 'outputs'"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_before_they_are_sent(
    run: Any, serve: Any, inputs: Any, params: Any, message: str
) -> None:
    server = serve(double=doubling())

    async def body(client: Any) -> None:
        with pytest.raises(UsageError, match=message):
            await client.infer("double", inputs, **params)

    run(body, server.url)
    assert server.served == []


def test_infer_says_when_a_model_answers_many_times(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises(UnsupportedError, match="4 responses"):
            await client.infer("llm", {"text_input": "x", "stream": True})

    run(body, server.url)


def test_outputs_that_do_not_fit_together_are_not_believed(run: Any, serve: Any) -> None:
    model = ocr_model()
    model.compute = lambda arrays: {
        "text": np.array([b"a", b"b"], object),
        "score": np.zeros(1, np.float32),
        "box": np.zeros((1, 4, 2), np.float32),
    }
    server = serve(ocr=model)

    async def body(client: Any) -> None:
        with pytest.raises(ProtocolError, match="2 texts, 1 scores and 1 boxes"):
            await client.ocr("ocr", b"picture")

    run(body, server.url)


def segments(pid: int | str = os.getpid()) -> list[Path]:
    return list(Path("/dev/shm").glob(f"tritonstream-{pid}-*"))


def test_inputs_go_through_shared_memory_which_is_used_again_and_removed(run: Any, serve: Any) -> None:
    server = serve(double=doubling())
    x = np.arange(12, dtype=np.float32).reshape(4, 3)

    async def body(client: Any) -> None:
        for factor in range(1, 6):
            y = (await client.infer("double", {"x": x * factor}, shared_memory=True))["y"]
            assert np.array_equal(y, x * factor * 2)
        assert len(segments()) == 1

    run(body, server.url)
    assert segments() == []
    assert server.calls["SystemSharedMemoryRegister"] == 1
    assert server.regions == {}


def test_a_region_that_a_server_may_still_read_is_not_used_again(run: Any, serve: Any) -> None:
    server = serve(double=doubling(first_token_s=30))

    async def body(client: Any) -> None:
        with pytest.raises(Exception, match="total_s"):
            await client.infer("double", {"x": np.zeros((1, 3))}, shared_memory=True, deadline_s=1)
        server.models["double"].first_token_s = 0
        await client.infer("double", {"x": np.zeros((1, 3))}, shared_memory=True)

    run(body, server.url)
    assert server.calls["SystemSharedMemoryRegister"] == 2
    assert segments() == []
    assert server.regions == {}


def test_what_a_killed_client_left_is_swept_by_the_next(run: Any, serve: Any) -> None:
    server = serve(double=doubling())
    script = (
        "import os, signal, sys, numpy as np\nfrom tritonstream import Client\nclient = Client(sys.argv[1])\n"
        "client.infer('double', {'x': np.zeros((1, 3))}, shared_memory=True)\n"
        "print(os.getpid(), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    victim = subprocess.run(
        [sys.executable, "-c", script, server.url], capture_output=True, text=True, check=False
    )
    pid = int(victim.stdout)
    assert len(segments(pid)) == 1
    assert len(server.regions) == 1

    async def body(client: Any) -> None:
        await client.infer("double", {"x": np.zeros((1, 3))}, shared_memory=True)
        assert segments(pid) == []
        assert [name.split("-")[1] for name in server.regions] == [str(os.getpid())]

    run(body, server.url)


def test_shared_memory_is_for_this_machine(run: Any, serve: Any) -> None:
    server = serve(double=doubling())

    async def body(client: Any) -> None:
        with pytest.raises(UsageError, match="this machine"):
            await client.infer("double", {"x": np.zeros((1, 3))}, shared_memory=True)

    host = server.url.replace("127.0.0.1", "0.0.0.0")
    run(body, host)
