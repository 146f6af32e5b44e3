"""The root command: quick, no heavy import, the right exit codes, and no traceback for what is expected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from trtbuild.cli import run
from trtbuild.cli.options import Number
from trtbuild.cli.root import COMMANDS, root

HEAVY = (
    "grpc",
    "numpy",
    "jinja2",
    "pydantic",
    "yaml",
    "rich",
    "tritonclient",
    "google",
    "openvino",
    "tokenizers",
)


def child(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trtbuild", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["--version"], ["build", "--help"], ["plan", "--help"]])
def test_help_imports_nothing_heavy(args):
    code = (
        "import sys\nfrom trtbuild.cli import main\n"
        f"try:\n    main({args!r})\nexcept SystemExit as e:\n    assert not e.code\n"
        f"print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "HEAVY []"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_listing_exists_and_explains_itself(name, capsys):
    command = root.get_command(None, name)
    assert command is not None
    assert command.name == name
    assert run([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: trtbuild {name}")


def test_help_shows_commands_and_the_options_of_the_default_command(capsys):
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert "--quant FORMAT" in text


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["modles"], "Did you mean 'models'?"),
        (["qwen-7b"], "The commands are build, plan,"),
        (["--modell", "x"], "--model"),
        (["--model", "qwen-7b", "--tp", "0"], "--tp"),
        (["--model", "qwen-7b", "--tp", "65"], "1<=x<=64"),
        (["--model", "qwen-7b", "--max-input", "-3"], "--max-input"),
        (["--model", "qwen-7b", "--max-output", "many"], "--max-output"),
        (["--model", "qwen-7b", "--target", "cpu"], "'engine', 'llmapi', 'local'"),
        (["--model", "qwen-7b", "--with", "asr"], "'ocr'"),
        (["--quant", "awq"], "--quant describes a model: give --model NAME too."),
        (["plan"], "--model NAME"),
        (
            ["--spec", "x.yaml", "--model", "qwen-7b", "--max-input", "9"],
            "--model, --max-input into the file",
        ),
        (["--model", "a", "--model", "b", "--name", "c"], "--name belongs to one --model"),
        (["--model", "qwen-7b", "plan"], "unexpected extra argument"),
        (["--model", "qwen-7b", "--output", ""], "the path is empty"),
        (["lint", " "], "the path is empty"),
    ],
)
def test_wrong_usage_is_told_and_exits_2(args, part, capsys):
    assert run(args) == 2
    captured = capsys.readouterr()
    assert part in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--model", "qwen-7c"], ["'qwen-7c'", "did you mean", "trtbuild models"]),
        (["--model", "qwen-7b", "--quant", "awk"], ["'awk'", "did you mean awq"]),
        (["--model", "qwen-7b", "--gpu", "l400"], ["'l400'", "trtbuild gpus"]),
        (["--model", "qwen-7b", "--name", "../x"], ["--name: '../x' cannot be a model name"]),
        (["--model", ""], ["--model is empty"]),
        (["--model", "\udcff"], ["--model holds U+DCFF", "no valid Unicode"]),
        (["--model", "qwen-7b", "--container", "25.1"], ["did you mean 25.01 or 25.10?"]),
        (["--model", "qwen-7b", "--container", "25.100"], ["did you mean 25.10?"]),
        (["--model", "qwen-7b", "--gpu", "l4", "--output", f"{__file__}/x/y"], ["is a file, so"]),
        (["--spec", "/dev/zero"], ["too long for a spec"]),
        (["--spec", "nothing.yaml"], ["nothing.yaml", "No such file"]),
        (["--model", "qwen-7b", "--weights", "nothing.gguf"], ["nothing.gguf: no such file"]),
        (["models", "zzz"], ["'zzz'"]),
    ],
)
def test_an_expected_failure_is_one_message_with_ways_out_and_exits_1(
    args, parts, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run(args) == 1
    captured = capsys.readouterr()
    assert captured.err.count("error: ") == 1
    for part in parts:
        assert part in captured.err
    assert list(tmp_path.iterdir()) == []


def test_no_traceback_in_a_child_either(tmp_path):
    done = child("--model", "no-such-model", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_ends_the_command_quietly():
    process = subprocess.Popen(
        [sys.executable, "-m", "trtbuild", "models", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, 1, 141)  # click's own by version, else ours
    assert errors == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_knows_few_characters(encoding):
    done = child("models", "smol", env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
    assert done.returncode == 0
    assert "smollm2-135m" in done.stdout


def test_ctrl_c_exits_130(monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(root, "invoke", interrupted)
    assert run(["models"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_a_folder_that_cannot_be_written_is_an_expected_failure(monkeypatch, capsys):
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(Path("/x/y")))

    monkeypatch.setattr(root, "invoke", denied)
    assert run(["models"]) == 1
    assert capsys.readouterr().err == "error: /x/y: Permission denied\n"


def _options(command, path=()):
    """Every option of a command and of those below it, with the words that lead there."""
    context = click.Context(command)
    for param in command.get_params(context):
        if isinstance(param, click.Option):
            yield path, param
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _options(command.get_command(context, name), (*path, name))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_no_option_takes_what_is_no_number(value, capsys):
    numbers = [
        (path, option)
        for path, option in _options(root)
        if isinstance(option.type, click.types.FloatParamType)
    ]
    assert len(numbers) > 15
    for path, option in numbers:
        assert run([*path, f"{option.opts[0]}={value}"]) == 2, (path, option.opts)
        said = capsys.readouterr().err
        assert option.opts[0] in said
        assert "Traceback" not in said


def test_every_number_has_a_bound_or_a_type_that_knows_what_is_finite():
    """click's own FLOAT takes nan and inf, which no measure, price or rate is."""
    loose = [
        (path, option.opts[0])
        for path, option in _options(root)
        if isinstance(option.type, click.types.FloatParamType) and not isinstance(option.type, Number)
    ]
    assert loose == []
