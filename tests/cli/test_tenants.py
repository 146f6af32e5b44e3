"""add, remove and list: whatever comes and goes, the others stay byte for byte."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from trtbuild.cli import run

ADD = {
    "qwen-7b": ["--model", "qwen-7b", "--quant", "awq"],
    "small": ["--model", "qwen2.5-1.5b", "--quant", "fp8", "--name", "small", "--concurrency", "4"],
    "ocr": ["--with", "ocr"],
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def held(folder: Path, name: str) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of every file in the folders of one model."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.relative_to(folder).parts[0].split("_")[0] == name
        and path.parent != folder
    }


@pytest.mark.parametrize("order", list(itertools.permutations(ADD)))
def test_every_order_of_coming_and_going_leaves_the_others_alone(order):
    repo = Path("r")
    first, *rest = order
    assert run([*ADD[first], "--gpu", "l40s", "--target", "engine", "--output", "r"]) == 0
    known = {first: held(repo, first)}
    for name in rest:
        assert run(["add", "r", *ADD[name]]) == 0
        known[name] = held(repo, name)
        assert known[name]
        for other in known:
            assert held(repo, other) == known[other]
    for name in order[:2]:
        assert run(["remove", name, "r"]) == 0
        assert held(repo, name) == {}
        del known[name]
        for other in known:
            assert held(repo, other) == known[other]


def test_what_is_added_is_planned_beside_what_is_there(capsys):
    assert run([*ADD["qwen-7b"], "--gpu", "l4", "--output", "r"]) == 0
    before = json.loads(Path("r/plan.json").read_text())
    assert run(["add", "r", *ADD["small"]]) == 0
    after = json.loads(Path("r/plan.json").read_text())
    assert after["models"][0] == before["models"][0]
    assert after["free_bytes"] < before["free_bytes"]
    assert after["target_reason"] == before["target_reason"]


def test_add_prints_what_is_added_and_the_rest_as_a_sum(capsys):
    assert run([*ADD["qwen-7b"], "--gpu", "l4", "--output", "r"]) == 0
    capsys.readouterr()
    assert run(["add", "r", *ADD["ocr"], "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["plan"]["ledger"]
    before = sum(item["bytes"] for item in items if item["model"] == "qwen-7b")
    assert run(["remove", "ocr", "r"]) == 0
    capsys.readouterr()
    assert run(["add", "r", *ADD["ocr"]]) == 0
    printed = capsys.readouterr()
    assert "qwen-7b" not in printed.out
    assert "ocr" in printed.out
    row = next(line for line in printed.out.splitlines() if "1 model beside them" in line)
    assert f"{before / 2**30:.2f} GiB" in row


def test_what_does_not_fit_beside_the_others_is_not_added(capsys):
    assert run([*ADD["qwen-7b"], "--gpu", "l4", "--output", "r"]) == 0
    before = Path("r/plan.json").read_bytes()
    capsys.readouterr()
    assert run(["add", "r", "--model", "qwen2.5-14b", "--quant", "fp8"]) == 1
    printed = capsys.readouterr()
    assert "error: " in printed.err
    assert "qwen-7b" in printed.out  # the whole account: who takes the room
    assert Path("r/plan.json").read_bytes() == before
    assert not Path("r/qwen2.5-14b").exists()


def test_add_dry_run_changes_nothing():
    assert run([*ADD["qwen-7b"], "--gpu", "l4", "--output", "r"]) == 0
    before = {p: p.stat().st_mtime_ns for p in Path("r").rglob("*")}
    assert run(["add", "r", *ADD["ocr"], "--dry-run"]) == 0
    assert {p: p.stat().st_mtime_ns for p in Path("r").rglob("*")} == before


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["add", "r", *ADD["qwen-7b"]], "has a model called 'qwen-7b' already"),
        (["add", "r", "--model", "qwen2.5-3b", "--name", "qwen-7b_engine"], "qwen-7b_engine"),
        (["add", "r", *ADD["qwen-7b"]], "of add-vision, its first word"),
        (
            ["add", "r", "--model", "qwen2.5-3b", "--name", "x" * 300],
            "it has 300 characters, and 128 are the",
        ),
        (["add", "r", "--model", "qwen2.5-3b", "--target", "local"], "is for the target engine"),
        (["add", "r", "--model", "qwen2.5-3b", "--gpu", "h100"], "planned for the gpu L4"),
        (["add", "nothing", *ADD["ocr"]], "no such folder"),
        (["add", "foreign", *ADD["ocr"]], "it has no trtbuild.json"),
        (["remove", "nobody", "r"], "it holds qwen-7b"),
        (["remove", "qwen-7b", "r"], "the last model"),
        (["remove", "x", "foreign"], "it has no trtbuild.json"),
        (["list", "foreign"], "it has no trtbuild.json"),
        (["list", "broken"], "broken"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(args, part, capsys):
    assert run([*ADD["qwen-7b"], "--gpu", "l4", "--output", "r"]) == 0
    Path("foreign").mkdir()
    Path("broken").mkdir()
    Path("broken/trtbuild.json").write_text("{")
    before = {p: p.read_bytes() for p in Path("r").rglob("*") if p.is_file()}
    capsys.readouterr()
    assert run(args) == 1
    assert part in capsys.readouterr().err
    assert {p: p.read_bytes() for p in Path("r").rglob("*") if p.is_file()} == before


def test_list_says_what_is_held_and_what_was_changed(capsys):
    assert run([*ADD["qwen-7b"], "--with", "ocr", "--gpu", "l4", "--output", "r"]) == 0
    Path("r/ocr/config.pbtxt").write_text("edited")
    capsys.readouterr()
    assert run(["list", "r"]) == 0
    text = capsys.readouterr().out
    assert "awq of Qwen/Qwen2.5-7B-Instruct" in text
    assert "changed: ocr/config.pbtxt" in text
    assert run(["list", "r", "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert set(listing["models"]) == {"qwen-7b", "ocr"}
    assert listing["models"]["ocr"]["folders"] == ["ocr", "ocr_cls", "ocr_det", "ocr_rec"]


def test_what_was_removed_by_hand_can_be_removed_from_the_list():
    import shutil

    assert run([*ADD["qwen-7b"], "--with", "ocr", "--gpu", "l4", "--output", "r"]) == 0
    shutil.rmtree("r/ocr_det")
    assert run(["remove", "ocr", "r"]) == 0
    assert not list(Path("r").glob("ocr*"))
