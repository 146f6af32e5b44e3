"""Calibration text: the user's own in whatever form, the shipped set, and what is said about both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtbuild.build.calibration import FIELDS, Calibration, load_calibration
from trtbuild.build.quantise import pack
from trtbuild.errors import ModelSourceError

TEXT = "A sentence that is long enough to count."


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    return path


def test_the_shipped_set_fills_awqs_limit_and_says_that_own_text_is_better() -> None:
    found = load_calibration(None, quant="awq")
    assert len(found.texts) == 32
    assert "your own users' prompts calibrate better" in found.note
    assert len(set(found.texts)) == 32


def test_awq_is_cut_to_32_and_that_is_said() -> None:
    asked = load_calibration(None, quant="awq", samples=512)
    assert len(asked.texts) == 32
    assert "512 texts were asked for; TensorRT-LLM cuts AWQ to 32" in asked.note
    assert len(load_calibration(None, quant="fp8", samples=34).texts) == 34
    assert len(load_calibration(None, quant="w4a8-awq", samples=64).texts) == 32


@pytest.mark.parametrize("field", FIELDS)
def test_usual_fields_are_found(tmp_path: Path, field: str) -> None:
    value: Any = [{"role": "user", "content": TEXT}] if field in ("messages", "conversations") else TEXT
    found = load_calibration(jsonl(tmp_path / "x.jsonl", {field: value, "id": 7}), quant="fp8")
    assert found.texts == (TEXT,)
    assert f"field {field!r}" in found.source


def test_a_named_field_wins_and_a_missing_one_is_answered_with_those_there(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", {"text": "not this one, although it is long", "body": TEXT})
    assert load_calibration(path, quant="fp8", field="body").texts == (TEXT,)
    with pytest.raises(ModelSourceError, match="no line has the field 'content'") as raised:
        load_calibration(path, quant="fp8", field="content")
    assert "body, text" in raised.value.remedies[0]


def test_the_only_text_field_is_taken_and_two_are_a_question(tmp_path: Path) -> None:
    assert load_calibration(jsonl(tmp_path / "a.jsonl", {"body": TEXT, "n": 1}), quant="fp8").texts == (TEXT,)
    two = jsonl(tmp_path / "b.jsonl", {"first": TEXT, "second": TEXT})
    with pytest.raises(ModelSourceError, match="2 others hold text") as raised:
        load_calibration(two, quant="fp8")
    assert "call the field that holds the text 'text'" in raised.value.remedies[0]


def test_conversations_are_everything_that_was_said(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": TEXT}, {"from": "gpt", "value": "An answer."}, {"content": None}]
    found = load_calibration(jsonl(tmp_path / "x.jsonl", {"messages": talk}), quant="fp8")
    assert found.texts == (f"{TEXT}\nAn answer.",)


def test_plain_text_is_paragraphs_and_json_may_be_a_list(tmp_path: Path) -> None:
    text = tmp_path / "x.txt"
    text.write_bytes(f"\ufeff{TEXT} One.\r\n\r\n{TEXT} Two.\n\n\n\nshort".encode())
    assert load_calibration(text, quant="fp8").texts == (f"{TEXT} One.", f"{TEXT} Two.")
    listed = tmp_path / "x.json"
    listed.write_text(json.dumps([{"text": TEXT}, TEXT]))
    assert sorted(load_calibration(listed, quant="fp8").texts) == [TEXT, TEXT]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.jsonl", b'{"text": 1\n', "x.jsonl:1: not valid JSON"),
        ("x.json", b"{", "not valid JSON"),
        ("x.txt", b"\xff\xfe\x00", "UTF-8"),
        ("x.txt", b"too short", "no text of at least 20 characters among 1"),
        ("x.jsonl", b"", "no text of at least 20 characters among 0"),
    ],
)
def test_what_holds_no_text_is_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelSourceError, match=words):
        load_calibration(path, quant="fp8")


def test_a_missing_file_is_refused_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match="no such file"):
        load_calibration(tmp_path / "none.jsonl", quant="awq")


def test_few_texts_are_said(tmp_path: Path) -> None:
    found = load_calibration(jsonl(tmp_path / "x.jsonl", {"text": TEXT}), quant="awq")
    assert "texts to calibrate on: 1; 32 are usual" in found.note


@settings(deadline=None)  # a busy machine is no fault
@given(st.lists(st.text(min_size=20).filter(lambda text: len(text.strip()) >= 20), min_size=1, max_size=5))
def test_what_is_written_is_one_json_object_a_line_in_ascii(texts: list[str]) -> None:
    content = Calibration(tuple(texts), "test").content
    assert content.isascii()
    lines = content.split("\n")
    assert [json.loads(line)["text"] for line in lines[:-1]] == texts
    assert lines[-1] == ""


def test_whole_texts_share_a_sequence_while_it_holds_them() -> None:
    texts = [[1, 2, 3], [4], [], [5, 6, 7, 8, 9, 10], [11]]

    assert pack(texts, 4) == [[1, 2, 3, 4], [5, 6, 7, 8], [11]]
