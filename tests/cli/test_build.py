"""``trtbuild --model …``: what is written, what is refused, and what comes out as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from trtbuild.cli import run

QWEN = ["--model", "qwen-7b", "--quant", "awq", "--gpu", "l4"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_sentence_that_users_type_writes_a_repository(capsys):
    assert run(["--model", "qwen-7b", "--quant", "awq"]) == 0
    captured = capsys.readouterr()
    assert "model_repo/build_engines.sh, then model_repo/launch.sh" in captured.out
    assert "awq" in captured.err  # why this target
    assert Path("model_repo/qwen-7b_engine/config.pbtxt").is_file()
    assert Path("model_repo/build_engines.sh").stat().st_mode & 0o111


def test_running_it_again_changes_nothing(capsys):
    assert run([*QWEN, "--output", "r"]) == 0
    first = contents(Path("r"))
    times = {path: path.stat().st_mtime_ns for path in Path("r").rglob("*") if path.is_file()}
    assert run([*QWEN, "--output", "r"]) == 0
    assert "5 unchanged" in capsys.readouterr().out
    assert contents(Path("r")) == first
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.parametrize("names", ["own", "classic"])
def test_the_command_in_a_repositorys_readme_brings_a_change_into_it(names, here, monkeypatch, capsys):
    """Run where it says: among folders that are called as the models are."""
    assert run([*QWEN, "--names", names, "--output", "r"]) == 0
    folders = sorted(path.name for path in Path("r").iterdir())
    monkeypatch.chdir("r")
    spec = Path("deployment.yaml").read_text()
    Path("deployment.yaml").write_text(spec.replace("quant: awq", "quant: awq\n  max_input_tokens: 1024"))
    (command,) = re.findall(r"^trtbuild (--spec .*)$", Path("README.md").read_text(), re.MULTILINE)
    assert run(command.split()) == 0
    assert "1,024 + 512" in capsys.readouterr().out
    assert sorted(path.name for path in Path().iterdir()) == folders
    assert sorted(path.name for path in here.iterdir()) == ["r"]


def test_own_calibration_is_a_step_of_the_script_with_the_users_texts():
    Path("own.jsonl").write_text('{"text": "What does the delivery of a parcel to Bern cost?"}\n')
    assert run([*QWEN, "--calibration", "own.jsonl", "--output", "r"]) == 0
    script = Path("r/build_engines.sh").read_text()
    assert "Qwen/Qwen2.5-7B-Instruct-AWQ" not in script
    assert "What does the delivery of a parcel to Bern cost?" in script
    # Written again from the spec that lies in the repository, from any folder: the same.
    assert run(["--spec", "r/deployment.yaml", "--output", "s"]) == 0
    assert Path("s/build_engines.sh").read_text() == script
    # One more model beside it leaves its build as it was decided.
    assert run(["add", "r", "--model", "qwen2.5-0.5b", "--quant", "awq", "--concurrency", "1"]) == 0
    assert "What does the delivery" in Path("r/build_engines.sh").read_text()


@pytest.mark.parametrize("command", [["plan"], ["build", "--dry-run"]])
def test_what_cannot_be_built_is_refused_by_plan_and_build_alike(command, capsys):
    assert run([*command, "--model", "smollm2-135m", "--quant", "gptq", "--gpu", "l4"]) == 1
    assert "gptq is read from a checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    "asked",
    [
        ["--model", "llama-3.1-70b", "--gpu", "l4"],
        ["--model", "llama-3.1-405b", "--gpu", "h100"],
        ["--model", "deepseek-v3", "--gpu", "h200", "--target", "llmapi"],
        ["--model", "qwen-7b", "--gpu", "l4", "--concurrency", "64", "--max-input", "16000"],
        ["--model", "qwen2.5-32b", "--gpu", "l4", "--target", "llmapi"],
    ],
)
def test_every_change_that_is_proposed_is_taken_by_the_next_command(asked, capsys):
    assert run(["plan", *asked, "--json"]) == 1
    plan = json.loads(capsys.readouterr().out)
    changes = [found["remedy"] for found in plan["findings"] if found["id"].startswith("memory.")]
    assert changes
    for change in changes:
        words = change.split()
        flags = dict(zip(asked[::2], asked[1::2], strict=True)) | dict(
            zip(words[::2], words[1::2], strict=True)
        )
        line = [word for pair in flags.items() for word in pair]
        assert run(["build", *line, "--dry-run"]) == 0, change
        capsys.readouterr()


def test_a_repository_fixes_the_gpu_so_that_none_is_proposed_on_adding(capsys):
    assert run([*QWEN, "--output", "r"]) == 0
    assert run(["add", "r", "--model", "llama-3.1-70b"]) == 1
    assert "--gpu" not in capsys.readouterr().err


def test_a_spec_file_writes_what_the_flags_write():
    Path("d.yaml").write_text("gpu: l4\nmodels:\n  - {model: qwen-7b, quant: awq}\n")
    assert run(["--spec", "d.yaml", "--output", "a"]) == 0
    assert run([*QWEN, "--output", "b"]) == 0
    assert contents(Path("a")) == contents(Path("b"))


def test_the_spec_that_is_written_writes_the_same_again():
    assert run([*QWEN, "--with", "ocr", "--max-input", "1500", "--output", "a"]) == 0
    assert run(["--spec", "a/deployment.yaml", "--output", "b"]) == 0
    assert contents(Path("a")) == contents(Path("b"))


def test_flags_beside_a_spec_override_gpu_target_and_container(capsys):
    Path("d.yaml").write_text("gpu: l4\nmodels:\n  - {model: qwen-7b, quant: awq}\n")
    assert run(["plan", "--spec", "d.yaml", "--gpu", "h100", "--container", "25.10", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["gpu"]["name"], plan["container"]) == ("H100-SXM", "25.10")


def test_a_dry_run_writes_nothing(here, capsys):
    assert run([*QWEN, "--dry-run"]) == 0
    assert "qwen-7b_engine" in capsys.readouterr().out
    assert list(here.iterdir()) == []


def test_json_is_pure_and_says_what_was_written(capsys, here):
    assert run([*QWEN, "--output", "r", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["repository"] == str(here / "r")
    assert "qwen-7b" in answer["written"]
    assert answer["plan"]["models"][0]["quant"] == "awq"


@pytest.mark.parametrize("command", [["plan"], ["build"], []])
def test_json_is_pure_also_when_it_does_not_fit(command, capsys, here):
    args = ["--model", "llama-3.1-70b", "--quant", "awq", "--gpu", "l4", "--json"]
    assert run([*command, *args]) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    plan = document.get("plan", document)
    assert plan["fits"] is False
    assert plan["free_bytes"] < 0
    assert captured.err.startswith("error: ")
    assert list(here.iterdir()) == []


def test_what_does_not_fit_shows_what_takes_the_room(capsys):
    assert run(["plan", "--model", "llama-3.1-70b", "--quant", "awq", "--gpu", "l4"]) == 1
    captured = capsys.readouterr()
    assert "llama-3.1-70b weights" in captured.out
    assert "error: " in captured.err


@pytest.mark.parametrize(
    "args",
    [["--quant", "nvfp4"], ["--quant", "awq", "--tp", "3"], ["--quant", "awq", "--kv-dtype", "fp8"]],
)
def test_what_a_rule_forbids_is_not_written(args, capsys, here):
    assert run(["--model", "qwen-7b", "--gpu", "l4", *args]) == 1
    assert "→" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_a_folder_of_somebody_else_is_left_alone(capsys):
    Path("mine").mkdir()
    Path("mine/precious.txt").write_text("keep")
    assert run([*QWEN, "--output", "mine"]) == 1
    assert "precious.txt" in capsys.readouterr().err
    assert contents(Path("mine")) == {"precious.txt": b"keep"}


def test_the_reference_deployment_is_refused_and_another_folder_named(capsys):
    from trtbuild.reference import write

    write(Path("model_repo"))
    before = contents(Path("model_repo"))
    for args in (QWEN, ["add", "model_repo", "--with", "ocr", "--name", "x", "--model", "qwen2.5-3b"]):
        assert run(args) == 1
    assert run(["remove", "ocr", "model_repo"]) == 1
    assert "--output" in capsys.readouterr().err
    assert contents(Path("model_repo")) == before


def test_classic_names_are_given_to_one_model_only(capsys):
    assert run([*QWEN, "--names", "classic", "--output", "r"]) == 0
    assert {"ensemble", "tensorrt_llm", "preprocessing", "postprocessing"} <= {
        p.name for p in Path("r").iterdir()
    }
    assert run([*QWEN, "--model", "qwen2.5-3b", "--names", "classic", "--output", "s"]) == 1
    assert "--names classic" in capsys.readouterr().err


def test_several_models_share_one_plan(capsys):
    assert run([*QWEN, "--model", "qwen2.5-1.5b", "--with", "ocr", "--output", "r", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert [model["name"] for model in plan["models"]] == ["qwen-7b", "qwen2.5-1.5b", "ocr"]
    assert sum(item["bytes"] for item in plan["ledger"]) + plan["free_bytes"] == plan["gpu"]["memory_bytes"]


def test_explain_names_the_numbers_of_the_plan(capsys):
    assert run(["plan", *QWEN, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert run(["plan", *QWEN, "--explain"]) == 0
    text = capsys.readouterr().out
    for number in (plan["models"][0]["kv_bytes_per_token"], plan["models"][0]["kv_tokens"]):
        assert str(number) in text.replace(",", "")
