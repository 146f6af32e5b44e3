"""Model files of every task in one real server: what they answer, what a bad picture spoils, and batches."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support.graphs import classifier, constant_answer, save
from tests.support.pages import encoded
from tests.support.vision_client import VisionClient

from tritonstream import AsyncClient, Client, Detections, InvalidRequest, Segmentation, UnsupportedError
from trtbuild.generate import generate
from trtbuild.lint.run import lint
from trtbuild.prepare import prepare
from trtbuild.serve.server import Server, start
from trtbuild.spec import DeploymentSpec, PreprocessSpec, Target, VisionSpec

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

ONE_DECODER = PreprocessSpec(instances=1)


def detector_output() -> Any:
    anchors = np.zeros((1, 6, 84))  # a dog of 0.8 in the middle of 64 × 64
    anchors[0, :, 5] = [32, 32, 16, 16, 0.1, 0.8]
    return anchors


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    labels = folder / "labels.txt"
    labels.write_text("cat\ndog\n")
    segments = np.zeros((1, 2, 16, 16))
    segments[0, 1, :, 8:] = 1

    def model(name: str, graph: Any, **options: Any) -> VisionSpec:
        return VisionSpec(
            name=name, model=save(graph, folder / f"{name}.onnx"), preprocess=ONE_DECODER, **options
        )

    spec = DeploymentSpec(
        target=Target.LOCAL,
        vision=(
            model("classes", classifier(2, batch=1), labels=labels),
            model("things", constant_answer(detector_output()), labels=labels),
            model("parts", constant_answer(segments), task="segmentation"),
            model("numbers", constant_answer(np.arange(24.0).reshape(1, 2, 3, 4)), task="raw"),
        ),
    )
    repository = folder / "repository"
    generate(prepare(spec), repository)
    with start(repository) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(server.grpc_address) as made:
        yield made


def colour(name: str, width: int = 40, height: int = 30, kind: str = "PNG") -> bytes:
    return encoded(Image.new("RGB", (width, height), name), kind)


def test_classes_and_their_labels(client: Client) -> None:
    found = client.classify("classes", colour("red", kind="JPEG"))
    assert {row.label for row in found.classes} == {"cat", "dog"}
    assert sum(row.score for row in found.classes) == pytest.approx(1, abs=1e-5)
    assert found.size == (40, 30)


def test_boxes_in_the_pictures_coordinates(client: Client) -> None:
    (thing,) = client.detect("things", colour("white", 128, 64)).things
    assert thing.label == "dog"
    # letterboxed: x × 0.5, and 16 rows above; 24…40 becomes 48…80 and (24 − 16) × 2 … (40 − 16) × 2
    assert thing.box == pytest.approx((48, 16, 80, 48))


def test_parts_of_a_picture(client: Client) -> None:
    found = client.segment("parts", colour("white", 50, 20))
    assert isinstance(found, Segmentation)
    assert found.classes.shape == (20, 50)
    assert found.classes[:, :25].max() == 0
    assert found.classes[:, 25:].min() == 1


def test_raw_tensors(client: Client) -> None:
    answer = client.infer("numbers", {"image": np.array([[colour("white")]], dtype=object)})
    assert answer["output"].tolist() == np.arange(24.0).reshape(1, 2, 3, 4).tolist()
    with pytest.raises(UnsupportedError, match="numbers does not classify"):
        client.classify("numbers", colour("white"))


def test_a_batch_larger_than_the_model_takes_comes_back_in_order(client: Client) -> None:
    sizes = [(10 + 3 * i, 20 + i) for i in range(20)]
    found = client.detect("things", [colour("white", *size) for size in sizes])
    assert [result.size for result in found] == sizes


def test_only_the_bad_pictures_of_a_batch_fail(client: Client) -> None:
    good = colour("blue", kind="JPEG")
    huge = encoded(Image.new("1", (20_000, 20_000)))
    animated = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), name) for name in ("red", "blue")]
    frames[0].save(animated, "GIF", save_all=True, append_images=frames[1:])
    pictures = [good, b"\0", good[:300], huge, animated.getvalue(), colour("red", 1, 1), b"GIF89a", good]
    pictures.append(encoded(Image.new("CMYK", (9, 9)), "JPEG"))
    found = client.classify("classes", pictures, return_errors=True)
    failed = [i for i, result in enumerate(found) if isinstance(result, InvalidRequest)]
    assert failed == [1, 2, 3, 6]
    assert "picture 3: the picture has 20000 x 20000" in str(found[3])
    assert found[0] == found[7]
    with pytest.raises(InvalidRequest, match="picture 1: the 1 bytes are no picture"):
        client.classify("classes", pictures)
    everything_bad = client.classify("classes", [b"\0", huge], return_errors=True)
    assert str(everything_bad[0]).startswith("picture 0: the 1 bytes are no picture")
    assert str(everything_bad[1]).startswith("picture 1: the picture has 20000 x 20000")


def test_batches_form_from_single_requests(client: Client, server: Server) -> None:
    counters = VisionClient(server.grpc_address, server.metrics_address)
    before = counters.counters("classes_network")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: client.classify("classes", colour("green")), range(160)))
    after = counters.counters("classes_network")
    counters.close()
    asked = after["request_success"] - before["request_success"]
    assert asked == 160
    assert after["exec_count"] - before["exec_count"] < asked


def test_the_asynchronous_twin(server: Server) -> None:
    async def ask() -> tuple[Any, Any]:
        async with AsyncClient(server.grpc_address) as client:
            pictures = [colour("white", 64, 64), b"no picture"]
            return await client.detect("things", pictures[0]), await client.detect(
                "things", pictures, return_errors=True
            )

    alone, several = asyncio.run(ask())
    assert isinstance(alone, Detections)
    assert several[0] == alone
    assert isinstance(several[1], InvalidRequest)


def test_the_repository_is_clean(server: Server) -> None:
    assert [str(finding) for finding in lint(Path(server.record.repository))] == []
