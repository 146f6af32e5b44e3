"""What README.md and the client's show is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from trtbuild.specfile import validate_spec

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLIENT = (ROOT / "clients" / "README.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_install_and_run_come_within_the_first_25_lines():
    head = "\n".join(README.splitlines()[:25])
    assert "pip install" in head
    assert "trtbuild --model qwen-7b --quant awq" in head
    assert "scripts/quickstart" in head


def test_the_specs_shown_are_valid():
    for text in blocks("yaml"):
        validate_spec(yaml.safe_load(text), where="README.md")


def test_the_commands_shown_exist(monkeypatch):
    from trtbuild.cli.root import COMMANDS

    lines = [line for block in blocks("sh") + blocks("console") for line in block.splitlines()]
    commands = [line.removeprefix("$ ").split()[1] for line in lines if re.match(r"(\$ )?trtbuild ", line)]
    assert commands
    assert {word for word in commands if not word.startswith("-")} <= set(COMMANDS)


def test_the_programs_shown_compile():
    for text in blocks("python"):
        compile(text, "README.md", "exec")


def test_the_clients_page_runs_from_top_to_bottom():
    program = "".join(blocks("python", CLIENT))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:3] == ["Hello, wörld!", "Hello, wörld!stop 4", "Hello, wörld"]  # the third stops at "!"
    assert said[3:6] == ["Hello, wörld!"] * 3
    assert said[6] == "Hi. True fast mode"
    assert said[7].startswith("no token within first_token_s=0.2")
    assert said[-1] == "Say hello. done"
