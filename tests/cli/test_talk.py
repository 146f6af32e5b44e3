"""ask, chat and ocr without a server: what they send, what they print, and what they do with errors."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

import tritonstream
from tritonstream import OcrLine, OcrResult
from tritonstream._pictures import encoded
from trtbuild.cli import chat, run


@dataclass
class Script:
    """What the pretended server answers, and what it was asked. An exception among the answers is raised."""

    answers: list[Any]
    finish: str = "stop"
    asked: list[dict[str, Any]] = field(default_factory=list)
    lines: tuple[Any, ...] = ()


class FakeStream:
    def __init__(self, script: Script) -> None:
        self._answer, self._finish = script.answers.pop(0), script.finish

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def text_deltas(self) -> Iterator[str]:
        if isinstance(self._answer, BaseException):
            raise self._answer
        yield from self._answer

    @property
    def completion(self) -> SimpleNamespace:
        return SimpleNamespace(
            text="".join(self._answer),
            finish_reason=self._finish,
            usage=SimpleNamespace(prompt_tokens=5, completion_tokens=len(self._answer)),
            timings=SimpleNamespace(first_token_s=0.01, total_s=0.02),
        )


@pytest.fixture
def served(monkeypatch):
    """Puts a scripted client in the place of tritonstream's, and gives stdin."""

    def _served(script: Script, stdin: str = "") -> Script:
        class FakeClient:
            def __init__(self, address: str) -> None:
                script.asked.append({"address": address})

            def __enter__(self) -> FakeClient:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def chat(self, model: str, messages: list[Any], **params: Any) -> FakeStream:
                script.asked.append({"model": model, "messages": [dict(m) for m in messages], **params})
                return FakeStream(script)

            def ocr(self, model: str, images: list[Any], *, return_errors: bool) -> list[Any]:
                assert return_errors
                script.asked.append({"model": model, "images": images})
                return [self._read(number, image) for number, image in enumerate(images)]

            def _read(self, number: int, image: Any) -> Any:
                if image.stem == "bad":
                    return tritonstream.InvalidRequest(f"m: picture {number}: no picture")
                try:
                    return OcrResult(script.lines, picture=encoded(image))
                except tritonstream.UsageError as error:
                    return error

        monkeypatch.setattr(tritonstream, "Client", FakeClient, raising=False)
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        return script

    return _served


SERVER = ["--url", "host:1", "--model", "m"]


@pytest.mark.parametrize("address", ["http://host:1", "host", "", "a b:1", "host:99999", "host:²"])
@pytest.mark.parametrize(
    "command", [["ask", "hi"], ["chat"], ["ocr", __file__], ["see", __file__], ["bench"], ["sweep"]]
)
def test_an_address_that_is_none_is_a_usage_error(
    served: Any, capsys: pytest.CaptureFixture[str], command: list[str], address: str
) -> None:
    served(Script([["Hi"]]))
    assert run([*command, "--url", address]) == 2
    assert "Invalid value for '--url'" in capsys.readouterr().err


def test_ask_prints_the_answer_as_it_comes(served, capsys):
    script = served(Script([["Hel", "lo"]]))
    assert run(["ask", "Who?", *SERVER, "--max-tokens", "7", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == "Hello\n"
    assert script.asked == [
        {"address": "host:1"},
        {"model": "m", "messages": [{"role": "user", "content": "Who?"}], "stream": True,
         "max_tokens": 7, "temperature": 0.0},
    ]  # fmt: skip


def test_ask_takes_the_question_from_a_pipe_and_gives_json(served, capsys):
    script = served(Script([["Hi"]], finish="length"), stdin="From a pipe\n")
    assert run(["ask", *SERVER, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {
        "model": "m", "text": "Hi", "finish_reason": "length", "prompt_tokens": 5, "completion_tokens": 1,
        "first_token_s": 0.01, "total_s": 0.02,
    }  # fmt: skip
    assert script.asked[1]["messages"][0]["content"] == "From a pipe\n"


def test_ask_says_how_to_answer(served):
    script = served(Script([["Hi"]]))
    words = ["--system", "Be brief.", "--top-p", "0.9", "--seed", "7", "--stop", "\n", "--stop", "END"]
    assert run(["ask", "Who?", *SERVER, *words]) == 0
    asked = script.asked[1]
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert (asked["top_p"], asked["seed"], asked["stop"]) == (0.9, 7, ("\n", "END"))


@pytest.mark.parametrize("piped", [True, False])
def test_a_question_that_is_not_utf8_is_told_where(served, monkeypatch, capsys, piped):
    """Bytes of a pipe are read as they come; in an argument Python puts surrogates for them."""
    script = served(Script([]))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9?"), encoding="utf-8"))
    assert run(["ask", *([] if piped else ["caf\udce9?"]), *SERVER]) == 1
    said = capsys.readouterr().err
    assert f"{'stdin' if piped else 'the question'} is not UTF-8: byte 0xe9 after 3 characters" in said
    assert "iconv" in said
    assert script.asked == []


def test_chat_goes_on_after_a_line_that_is_not_utf8(served, monkeypatch, capsys):
    script = served(Script([["fine"]]))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\nhello\n"), encoding="utf-8"))
    assert run(["chat", *SERVER]) == 0
    heard = capsys.readouterr()
    assert "the line is not UTF-8: byte 0xe9" in heard.err
    assert heard.out == "fine\n"
    assert [asked["messages"][0]["content"] for asked in script.asked[1:]] == ["hello"]


@pytest.mark.parametrize("question", ["", "  \n"])
def test_an_empty_question_is_not_asked(served, capsys, question):
    script = served(Script([]), stdin=question)
    assert run(["ask", question, *SERVER]) == 2
    assert run(["ask", *SERVER]) == 2
    assert "the question is empty" in capsys.readouterr().err
    assert script.asked == []
    assert run(["ask", "x", *SERVER, "--stop", ""]) == 2


def test_an_answer_that_was_cut_off_says_so(served, capsys):
    served(Script([["Hi"]], finish="length"))
    assert run(["ask", "x", *SERVER]) == 0
    assert "--max-tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (tritonstream.ConnectError("nobody answers"), "trtbuild status"),
        (tritonstream.ModelNotFound("no such model"), "trtbuild status --json"),
        (tritonstream.Overloaded("queue is full"), "queue is full"),
    ],
)
def test_what_the_server_refuses_is_an_expected_failure(served, capsys, error, part):
    served(Script([error]))
    assert run(["ask", "x", *SERVER]) == 1
    captured = capsys.readouterr()
    assert part in captured.err
    assert captured.out == ""


def test_chat_in_a_pipe_keeps_the_history_and_prints_answers_only(served, capsys):
    script = served(Script([["one"], ["two"]]), stdin="first\n\nsecond\n/stop\nnever\n")
    assert run(["chat", *SERVER, "--system", "Be short."]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("one\ntwo\n", "")
    assert script.asked[2]["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "second"},
    ]


@pytest.fixture
def terminal(monkeypatch):
    """stdin as a terminal; gives what types on it."""
    master, slave = os.openpty()
    stdin = os.fdopen(slave, encoding="utf-8")
    monkeypatch.setitem(sys.modules, "readline", None)  # it would read the real terminal

    def install() -> Any:
        monkeypatch.setattr("sys.stdin", stdin)
        return lambda text: os.write(master, text.encode())

    yield install
    stdin.close()
    os.close(master)


@pytest.mark.parametrize("error", [tritonstream.Overloaded("queue is full"), KeyboardInterrupt()])
def test_an_error_or_ctrl_c_ends_no_conversation(served, capsys, terminal, error):
    script = served(Script([["one"], error, ["three"]]))
    type_ = terminal()
    type_("first\nsecond\nthird\n\x04")
    assert run(["chat", *SERVER]) == 0
    captured = capsys.readouterr()
    assert "one" in captured.out
    assert "three" in captured.out
    assert ("queue is full" if str(error) else "(stopped)") in captured.err
    assert [m["content"] for m in script.asked[3]["messages"]] == ["first", "one", "third"]


def test_lines_pasted_while_an_answer_comes_are_the_next_messages_and_stop_stops(terminal):
    type_ = terminal()
    over, ahead, stops = threading.Event(), deque(), []
    type_("größer\n\n/stop\nmore\n/stop\n")

    def cancel() -> None:
        stops.append(list(ahead))
        if len(stops) == 2:
            over.set()

    watcher = threading.Thread(target=chat._watch, args=(over, cancel, ahead))
    watcher.start()
    watcher.join(20)
    assert not watcher.is_alive()
    assert stops == [["größer"], ["größer", "more"]]


def test_chat_forgets_on_clear_but_not_the_system_message(served):
    script = served(Script([["one"], ["two"]]), stdin="first\n/clear\nsecond\n")
    assert run(["chat", *SERVER, "--system", "S"]) == 0
    assert [m["content"] for m in script.asked[2]["messages"]] == ["S", "second"]


def test_chat_goes_on_after_a_message_that_is_refused(served, capsys):
    script = served(Script([tritonstream.InvalidRequest("too long"), ["fine"]]), stdin="long\nshort\n")
    assert run(["chat", *SERVER]) == 0
    captured = capsys.readouterr()
    assert "too long" in captured.err
    assert captured.out == "fine\n"
    assert [m["content"] for m in script.asked[2]["messages"]] == ["short"]


LINES = (
    OcrLine("Größe 5 €", 0.98, ((10.0, 10.0), (90.0, 10.0), (90.0, 30.0), (10.0, 30.0))),
    OcrLine("second", 0.9, ((10.0, 50.0), (90.0, 50.0), (90.0, 70.0), (10.0, 70.0))),
)


@pytest.fixture
def picture(tmp_path):
    from PIL import Image

    path = tmp_path / "in.png"
    Image.new("RGB", (100, 80), "white").save(path)
    return path


def test_ocr_prints_lines(served, capsys, picture):
    script = served(Script([], lines=LINES))
    assert run(["ocr", str(picture), *SERVER]) == 0
    assert capsys.readouterr().out == "Größe 5 €\nsecond\n"
    assert script.asked[1] == {"model": "m", "images": [picture]}


@pytest.fixture
def folder(picture):
    picture.with_name("bad.JPG").write_bytes(b"x")
    picture.with_name("notes.txt").write_text("no picture")
    return picture.parent


def test_ocr_reads_a_folder_and_fails_for_what_is_no_picture(served, capsys, folder):
    served(Script([], lines=LINES))
    assert run(["ocr", str(folder), *SERVER]) == 1
    captured = capsys.readouterr()
    bad, good = folder / "bad.JPG", folder / "in.png"
    assert captured.out == f"{bad}:\n  error: m: no picture\n{good}:\n  Größe 5 €\n  second\n"
    assert f"1 of 2 pictures failed; {bad}: m: no picture" in captured.err
    assert run(["ocr", str(good), str(bad), *SERVER, "--json"]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert ([line["text"] for line in first["lines"]], second["error"]) == (
        ["Größe 5 €", "second"],
        "m: no picture",
    )


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_picture_that_is_not_there_fails_alone(served, capsys, picture, options):
    served(Script([], lines=LINES))
    gone = picture.with_name("gone.png")
    assert run(["ocr", str(picture), str(gone), str(picture), *SERVER, *options]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("second") == 2
    assert captured.out.count("No such file") == 1
    assert f"1 of 3 pictures failed; {gone}: " in captured.err


@pytest.mark.parametrize("watched", [True, False])
def test_a_terminal_is_told_how_far_a_long_list_is(served, capsys, monkeypatch, picture, watched):
    served(Script([], lines=LINES))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: watched)
    assert run(["ocr", *[str(picture)] * 40, *SERVER]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("second") == 40
    assert captured.err == ("32 of 40 pictures\n40 of 40 pictures\n" if watched else "")


@pytest.mark.parametrize("command", ["ocr", "see"])
def test_a_folder_without_pictures_and_many_drawn_into_one_are_wrong_usage(command, capsys, tmp_path, folder):
    (tmp_path / "empty").mkdir()
    assert run([command, str(tmp_path / "empty"), *SERVER]) == 2
    assert "no picture lies in" in capsys.readouterr().err
    assert run([command, str(folder), *SERVER, "--draw", "x.png"]) == 2
    assert "--draw writes one picture, and 2 were given" in capsys.readouterr().err


def test_ocr_json_has_boxes_and_scores(served, capsys, picture):
    served(Script([], lines=LINES))
    assert run(["ocr", str(picture), *SERVER, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["lines"][0]
    assert first == {"text": "Größe 5 €", "score": 0.98, "box": [[10, 10], [90, 10], [90, 30], [10, 30]]}


def test_ocr_draws_each_box_on_the_picture(served, picture, tmp_path):
    from PIL import Image

    served(Script([], lines=LINES))
    assert run(["ocr", str(picture), *SERVER, "--draw", str(tmp_path / "out.png")]) == 0
    with Image.open(tmp_path / "out.png") as drawn:
        assert drawn.size == (100, 80)
        assert drawn.getpixel((50, 10)) == drawn.getpixel((90, 60)) == (220, 30, 30)
        assert drawn.getpixel((50, 40)) == (255, 255, 255)


@pytest.mark.parametrize("name", ["out.txt", "out"])
def test_ocr_draw_to_a_name_of_no_picture_format(served, picture, tmp_path, capsys, name):
    served(Script([], lines=LINES))
    assert run(["ocr", str(picture), *SERVER, "--draw", str(tmp_path / name)]) == 1
    assert ".png or .jpg" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ocr", "see"])
def test_only_pictures_that_are_not_there_are_wrong_usage(command, capsys):
    assert run([command, "nothing.png", "none.png", *SERVER]) == 2
    assert "nothing.png, none.png" in capsys.readouterr().err


@pytest.mark.parametrize("args", [["ask", "x"], ["chat"], ["ask", "x", "--repo", "nothing"]])
def test_without_a_server_the_way_to_start_one_is_told(args, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TRTBUILD_STATE", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run(args) == 1
    assert "trtbuild serve" in capsys.readouterr().err
