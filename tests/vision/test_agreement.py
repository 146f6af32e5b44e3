"""The served pipelines beside the plain way on 200 pictures of odd sizes, modes and orientations."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.pictures import odd_pictures

from tritonstream import Client
from trtbuild.build.vision_source import converted
from trtbuild.catalog.vision import ModelRow, entry
from trtbuild.errors import ModelSourceError
from trtbuild.generate import generate
from trtbuild.prepare import prepare
from trtbuild.serve.server import start
from trtbuild.spec import DeploymentSpec, Target, VisionSpec

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 200
NAMES = {"classify": "efficientnet-lite0", "detect": "yolov3-tiny"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The networks as plain ONNX files, as nobody served them."""
    folder = tmp_path_factory.mktemp("plain")
    paths = {}
    for task, name in NAMES.items():
        row = entry(name)
        assert isinstance(row, ModelRow)
        try:
            (folder / f"{task}.onnx").write_bytes(converted(row).model.SerializeToString())
        except ModelSourceError as error:
            pytest.skip(str(error))
        paths[task] = folder / f"{task}.onnx"
    return paths


@pytest.fixture(scope="module")
def client(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    repository = tmp_path_factory.mktemp("served") / "repository"
    vision = tuple(
        VisionSpec(name=task, pipeline=name, postprocess={"top_k": 1000} if task == "classify" else {})
        for task, name in NAMES.items()
    )
    generate(prepare(DeploymentSpec(target=Target.LOCAL, vision=vision)), repository)
    with start(repository) as server, Client(server.grpc_address) as made:
        yield made


def reference(task: str, model: Path, pictures: Sequence[bytes]) -> list[Any]:
    data = b"".join(len(picture).to_bytes(4, "big") + picture for picture in pictures)
    command = [sys.executable, "-m", "tests.support.vision_reference", task, str(model)]
    answer = subprocess.run(command, input=data, capture_output=True, check=True)
    found: list[Any] = json.loads(answer.stdout)
    return found


def test_classes_agree(client: Client, models: dict[str, Path]) -> None:
    pictures = list(odd_pictures(COUNT))
    expected = reference("classify", models["classify"], pictures)
    found = client.classify("classify", pictures)
    for answer, plain in zip(found, expected, strict=True):
        assert list(answer.size) == plain["size"]
        scores = {row.class_id: row.score for row in answer.classes}
        strips = max(answer.size) > 24 * min(answer.size)  # whose whole is not made before it is cut
        worst = max(abs(scores[number] - value) for number, value in enumerate(plain["scores"]))
        assert worst < (0.05 if strips else 1e-4), answer.size


def test_boxes_agree(client: Client, models: dict[str, Path]) -> None:
    pictures = list(odd_pictures(COUNT, seed=8))
    expected = reference("detect", models["detect"], pictures)
    found = client.detect("detect", pictures)
    assert sum(len(plain["things"]) for plain in expected) > 20
    for answer, plain in zip(found, expected, strict=True):
        assert list(answer.size) == plain["size"]
        assert [thing.class_id for thing in answer.things] == [thing["class_id"] for thing in plain["things"]]
        for thing, other in zip(answer.things, plain["things"], strict=True):
            assert thing.score == pytest.approx(other["score"], abs=1e-3)
            assert thing.box == pytest.approx(other["box"], abs=0.1)
