"""Every reader of files with one JSON value a line takes what strings may hold, and names a bad line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trtbuild.build.calibration import load_calibration
from trtbuild.errors import TrtbuildError
from trtbuild.measure.load.prompts import read_prompts
from trtbuild.measure.load.trace import read_trace
from trtbuild.measure.quality.questions import read_questions

TEXT = "a paragraph\u2029a line\u2028a next line\x85a file separator"
SECOND = "another text, long enough to be calibrated on"


def trace(path: Path) -> list[str | None]:
    return [row.prompt for row in read_trace(path)]


READERS: dict[str, Callable[[Path], list[str | None]]] = {
    "bench --traffic": lambda path: [prompt.text for prompt in read_prompts(path)],
    "bench --shape trace:": trace,
    "quality --prompts": lambda path: [one.prompt.text for one in read_questions(path, max_tokens=8)],
    "build --calibration": lambda path: list(load_calibration(path, quant="awq").texts),
}


@pytest.mark.parametrize("reader", READERS)
def test_line_ends_inside_a_string_do_not_end_the_line(tmp_path: Path, reader: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"at_s": 0, "prompt": "{TEXT}"}}\n\n{{"at_s": 1, "prompt": "{SECOND}"}}\n', "utf-8")
    assert READERS[reader](path) == [TEXT, SECOND]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("bad", ["{broken", "[" * 100_000])
def test_a_line_that_is_no_json_is_named(tmp_path: Path, reader: str, bad: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"at_s": 0, "prompt": "one"}}\n{bad}\n', "utf-8")
    with pytest.raises(TrtbuildError, match=r"r\.jsonl:2:? "):
        READERS[reader](path)
