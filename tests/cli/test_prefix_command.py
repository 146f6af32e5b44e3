"""``trtbuild prefix``: logs of every form, and the errors of those that are none."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path

import pytest
from tests.support.real_tokenizers import tokenizer_spec

from trtbuild.cli import run


def write_log(path: Path, rows: list[object]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_every_form_of_a_line_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(
        tmp_path / "log.jsonl",
        [
            "plain text",
            {"prompt": "a prompt"},
            {"text_input": "x"},
            {"messages": [{"role": "user", "content": "hi"}]},
        ],
    )
    assert run(["prefix", str(log), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["prompts"], report["tokens_are"]) == (4, "rough")


def test_what_parts_the_prompts_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = " ".join(["steady"] * 300)
    log = write_log(tmp_path / "log.jsonl", [f"At 2026-01-0{day} 10:00 {body}" for day in (1, 2, 3)])
    assert run(["prefix", str(log), "--block", "16"]) == 0
    shown = capsys.readouterr().out
    assert "timestamp" in shown
    assert "2026-01-01" in shown


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no prompt"),
        (b"{broken", "log.jsonl:1 is not JSON"),
        (b'{"prompt": "a"}\n{"other": 1}', "log.jsonl:2 holds no prompt"),
        (b'"\xff"', "not UTF-8"),
        (b'{"messages": ["no object"]}', "a message is an object"),
        (b'"whole"\n' + b"[" * 100_000, "log.jsonl:2 is not JSON"),
        (b'"\\ud83d\\ude00"\n"half \\ud83d"', "log.jsonl:2 holds half of a surrogate pair"),
    ],
)
def test_what_is_no_log_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(content)
    assert run(["prefix", str(log)]) == 1
    assert message in capsys.readouterr().err


def test_line_ends_inside_a_string_do_not_end_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes('"one\u2028line"\r\n"another\x85one"\r\n'.encode())
    assert run(["prefix", str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompts"] == 2


def test_a_log_comes_from_stdin_and_as_a_batch_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"custom_id": "1", "body": {"messages": [{"role": "user", "content": "hi"}]}}
    stdin = io.TextIOWrapper(io.BytesIO(f"{json.dumps(row)}\n".encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert run(["prefix", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompts"] == 1


def test_long_examples_leave_room_for_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = " ".join(["steady"] * 300)
    log = write_log(tmp_path / "log.jsonl", [f"{uuid.UUID(int=number << 90)} {body}" for number in (1, 2, 3)])
    assert run(["prefix", str(log)]) == 0
    assert "drop it, or move it" in capsys.readouterr().out


@pytest.mark.parametrize("beside", [[], ["--with", "ocr"]])
def test_the_plans_model_says_what_it_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], beside: list[str]
) -> None:
    repo = tmp_path / "repo"
    assert run(["--model", "qwen-7b", "--quant", "awq", "--gpu", "l4", *beside, "--output", str(repo)]) == 0
    body = " ".join(["steady"] * 300)
    log = write_log(tmp_path / "log.jsonl", [f"At 2026-01-0{day} 10:00 {body}" for day in (1, 2, 3)])
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text(json.dumps(tokenizer_spec("smollm2")))
    capsys.readouterr()
    assert run(["prefix", str(log), "--repo", str(repo), "--tokenizer", str(tokenizer), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    # of 300 tokens nearly all are in the cache once the time is at the end: two of three prompts skip them
    assert 0 < report["ttft_moved_s"] < 0.6 * report["ttft_s"]
