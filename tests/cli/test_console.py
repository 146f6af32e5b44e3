"""Tables in a narrow terminal."""

from __future__ import annotations

import pytest

from trtbuild.cli import console


def test_no_value_is_cut_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "PIPE_WIDTH", 30)
    cells = ("smollm2-135m", "127.0.0.1:8001", "2,048 + 512", "健康", "one two three")
    console.print_table(("model", ">address", "in + out", "state", "why"), [cells])
    shown = capsys.readouterr().out
    for word in (*cells[:-1], "one", "two", "three", "in + out"):
        assert word in shown
