"""The listings, for people and as JSON."""

from __future__ import annotations

import json

import pytest

from trtbuild.cli import run


def listing(capsys, *args: str) -> str:
    assert run(args) == 0
    return capsys.readouterr().out


def test_models_says_what_qwen_7b_means(capsys):
    (row,) = (line for line in listing(capsys, "models").splitlines() if ", qwen-7b " in line)
    assert "Qwen/Qwen2.5-7B-Instruct" in row


def test_models_json_holds_shapes_and_sources(capsys):
    rows = {row["id"]: row for row in json.loads(listing(capsys, "models", "--json"))}
    assert len(rows) >= 40
    qwen = rows["Qwen/Qwen2.5-7B-Instruct"]
    assert "qwen-7b" in qwen["names"]
    assert (qwen["shape"]["layers"], qwen["shape"]["kv_heads"], qwen["shape"]["class"]) == (
        28,
        4,
        "Qwen2ForCausalLM",
    )
    assert all(row["source"] for row in rows.values())


def test_models_by_a_word(capsys):
    lines = listing(capsys, "models", "SmolLM2").splitlines()
    assert [line.split()[0] for line in lines if "SmolLM2" in line] == [
        "smollm2-135m",
        "smollm2-360m",
        "smollm2-1.7b",
    ]


def test_gpus_json_has_bytes(capsys):
    rows = {row["name"]: row for row in json.loads(listing(capsys, "gpus", "--json"))}
    assert rows["L4"]["memory_bytes"] == 22 * 2**30  # usable_gib 22.0
    assert rows["L4"]["sm"] == "8.9"


def test_formats_matrix_gives_a_reason_for_each_no(capsys):
    rows = json.loads(listing(capsys, "formats", "--gpu", "l40s", "--json"))
    nvfp4 = next(row for row in rows if row["name"] == "nvfp4")
    assert nvfp4["support"]["engine"]["served"] is False
    assert "SM 8.9" in nvfp4["support"]["engine"]["why"]
    for row in rows:
        for target in row["support"].values():
            assert target["served"] or target["why"]


@pytest.mark.parametrize("args", [["formats"], ["formats", "--gpu", "A100-80g"], ["gpus"]])
def test_tables_fit_a_pipe(capsys, args):
    lines = listing(capsys, *args).splitlines()
    assert max(map(len, lines)) <= 110
    assert all(line == line.rstrip() for line in lines)
