"""A real server with the OCR pipeline, as `trtbuild` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.pages import packaged
from tests.support.vision_client import VisionClient

from trtbuild.catalog.vision import pipeline
from trtbuild.generate import generate
from trtbuild.prepare import prepare
from trtbuild.serve.server import Server, start
from trtbuild.spec import DeploymentSpec, Target, VisionSpec


@pytest.fixture(scope="session")
def ocr_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packaged("rapidocr", pipeline("ocr").networks[0].file)
    folder = tmp_path_factory.mktemp("ocr") / "repository"
    generate(prepare(DeploymentSpec(target=Target.LOCAL, vision=(VisionSpec(),))), folder)
    return folder


@pytest.fixture(scope="module")
def ocr_server(ocr_repository: Path) -> Iterator[Server]:
    with start(ocr_repository) as server:
        yield server


@pytest.fixture(scope="module")
def client(ocr_server: Server) -> Iterator[VisionClient]:
    found = VisionClient(ocr_server.grpc_address, ocr_server.metrics_address)
    yield found
    found.close()
