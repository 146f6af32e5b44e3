"""What README.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from trtbuild.specfile import validate_spec

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


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
