from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.pages import packaged
from tests.support.tiny_onnx import FLOAT, node, onnx_bytes

from trtbuild.build.onnx_file import load_onnx
from trtbuild.build.vision_weights import ocr_assets, served_network, write_vision_assets
from trtbuild.catalog.vision import pipeline
from trtbuild.errors import CatalogError, ModelSourceError
from trtbuild.plan.vision import plan_vision
from trtbuild.spec import VisionSpec

IDENTITY = ([node("Identity", ["x"], ["y"])], {"x": (FLOAT, ("n",))}, {"y": (FLOAT, ("n",))})


def test_the_alphabet_ends_with_the_space(tmp_path: Path) -> None:
    recogniser = tmp_path / "rec.onnx"
    recogniser.write_bytes(onnx_bytes(*IDENTITY, metadata={"character": "a\n\u3000\né"}))
    assert ocr_assets({"rec": recogniser}) == {"characters.txt": "a\n\u3000\né\n ".encode()}


def test_a_recogniser_without_alphabet_is_refused(tmp_path: Path) -> None:
    recogniser = tmp_path / "rec.onnx"
    recogniser.write_bytes(onnx_bytes(*IDENTITY))
    with pytest.raises(ModelSourceError, match="no alphabet"):
        ocr_assets({"rec": recogniser})


def test_a_recogniser_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "rec.onnx"
    other.write_bytes(onnx_bytes(*IDENTITY, metadata={"character": "a"}))
    with pytest.raises(
        ModelSourceError, match="has the outputs y; a recogniser with the output fetch_name_0"
    ):
        served_network(pipeline("ocr").network("rec"), other)


def test_the_packaged_networks_are_served_with_their_alphabet(tmp_path: Path) -> None:
    (plan, _), row = plan_vision(VisionSpec()), pipeline("ocr")
    files = {item.model: packaged("rapidocr", row.network(item.role).file) for item in plan.networks}
    assets, served = write_vision_assets(plan, files, tmp_path / "made")
    characters = (assets / "characters.txt").read_text(encoding="utf-8").split("\n")
    assert len(characters) + 1 == row.network("rec").outputs[0].dims[-1]  # and the blank
    assert served["ocr_det"] == files["ocr_det"]
    assert [row.name for row in load_onnx(served["ocr_rec"]).outputs] == [
        "fetch_name_0",
        "best_id",
        "best_score",
    ]


def test_the_front_sends_no_more_than_the_networks_were_measured_for() -> None:
    row = pipeline("ocr")
    limits = {key: int(value) for key, value in row.front.parameters.items()}
    assert row.network("det").workspace.max_elements == 3 * limits["map_pixels"]
    assert row.network("rec").workspace.max_elements == 3 * 48 * limits["line_width"]
    # the workspace of a batch of 8: a session, and 350 bytes for each of 8 × 184,320 elements
    assert row.network("rec").workspace.at_batch(8) == 53_477_376 + 350 * 8 * 184_320


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(CatalogError, match="no vision pipeline is called 'faces'"):
        pipeline("faces")
    with pytest.raises(CatalogError, match="no network 'seg'"):
        pipeline("ocr").network("seg")
