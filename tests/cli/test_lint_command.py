"""`trtbuild lint` and `rules`: exit codes, silence, machine-readable output, corrections."""

from __future__ import annotations

import json

from tests.support.lint_repo import PYTHON_MODEL, nvidia, write

from trtbuild.cli import run
from trtbuild.lint.rule import all_rules


def test_a_clean_repository_is_silent(tmp_path, capsys):
    write(tmp_path, "m", 'backend: "python"\n', {"1/model.py": PYTHON_MODEL})
    assert run(["lint", str(tmp_path)]) == 0
    assert tuple(capsys.readouterr()) == ("", "")


def test_errors_exit_1_and_warnings_0(tmp_path, capsys):
    nvidia(tmp_path, "0.19.0", bls=1)
    assert run(["lint", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "tensorrt_llm_bls/config.pbtxt:" in output
    assert "warning: 1 instance of tensorrt_llm_bls" in output
    assert output.endswith("1 warning\n")
    write(tmp_path, "m", "max_batch: 1\n", {"1/model.onnx": ""})
    assert run(["lint", str(tmp_path)]) == 1
    assert (
        "m/config.pbtxt:1:12: error: max_batch is not a field of ModelConfig [unknown-key]"
        in capsys.readouterr().out
    )


def test_json_and_sarif(tmp_path, capsys):
    write(tmp_path, "a b", "max_batch: 1\n", {"1/model.onnx": ""})
    assert run(["lint", str(tmp_path), "--json"]) == 1
    rows = {row["rule"]: row for row in json.loads(capsys.readouterr().out)}
    assert (
        rows["unknown-key"] | {"file": "a b/config.pbtxt", "line": 1, "severity": "error"}
        == rows["unknown-key"]
    )
    assert run(["lint", str(tmp_path), "--sarif"]) == 1
    log = json.loads(capsys.readouterr().out)
    result = next(item for item in log["runs"][0]["results"] if item["ruleId"] == "unknown-key")
    place = result["locations"][0]["physicalLocation"]
    assert (log["version"], result["level"]) == ("2.1.0", "error")
    assert place["artifactLocation"]["uri"] == "a%20b/config.pbtxt"
    assert place["region"] == {"startLine": 1, "startColumn": 12}
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert rules[result["ruleIndex"]]["id"] == "unknown-key"
    assert run(["lint", str(tmp_path), "--json", "--sarif"]) == 2


def test_fix_corrects_the_safe_ones_and_keeps_the_rest_of_the_file(tmp_path, capsys):
    text = (
        "\ufeffname: \"wrong\"  # keep\r\nbackend: 'onnx'\r\n"
        "input [ { name: 'a' data_type: TYPE_FLOAT dims: [ 3 ] } ]\r\n"
    )
    path = write(tmp_path, "m", text.encode(), {"1/model.onnx": ""})
    path.chmod(0o640)
    assert run(["lint", str(tmp_path), "--fix"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("fixed: ") == 3
    assert path.read_bytes().decode() == text.replace("wrong", "m").replace("onnx'", "onnxruntime'").replace(
        "TYPE_FLOAT", "TYPE_FP32"
    )
    assert path.stat().st_mode & 0o777 == 0o640


def test_fix_spells_values_and_adds_keys(tmp_path, capsys):
    values = {"kv_cache_free_gpu_mem_fraction": "0,5", "enable_kv_cache_reuse": "yes"}
    nvidia(tmp_path, "0.18.2", values=values)
    path = tmp_path / "tensorrt_llm" / "config.pbtxt"
    run(["lint", str(tmp_path), "--container", "25.10", "--fix", "--json"])
    left = {row["rule"] for row in json.loads(capsys.readouterr().out)}
    text = path.read_text()
    assert 'string_value: "0.5"' in text
    assert 'key: "xgrammar_tokenizer_info_path"' in text
    assert not left & {"number-value", "bool-value", "missing-parameter"}
    assert run(["lint", str(tmp_path), "--fix"]) == 0


def test_fix_takes_quotes_away_and_has_nothing_left_to_do(tmp_path, capsys):
    text = (
        'backend: "python"\nmax_batch_size: "8"\nmodel_transaction_policy { decoupled: "False" }\n'
        "instance_group [ { kind: 'KIND_CPU' count: 1 } ]\n"
    )
    path = write(tmp_path, "m", text, {"1/model.py": PYTHON_MODEL})
    assert run(["lint", str(tmp_path), "--fix"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "fixed: " in line]
    assert [line.split(":")[1] for line in told] == ["2", "3", "4"]
    right = text.replace('"8"', "8").replace('"False"', "false").replace("'KIND_CPU'", "KIND_CPU")
    assert path.read_text() == right
    assert run(["lint", str(tmp_path), "--fix"]) == 0
    assert "fixed: " not in capsys.readouterr().err


def test_usage_and_expected_failures(tmp_path, capsys):
    assert run(["lint", str(tmp_path / "none")]) == 1
    assert "is no folder" in capsys.readouterr().err
    assert run(["lint", str(tmp_path), "--container", "20.01"]) == 1
    assert "20.01" in capsys.readouterr().err
    assert run(["lint"]) == 2


def test_rules_are_listed_and_explained(capsys):
    assert run(["rules", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows] == [rule.id for rule in all_rules()]
    assert all(
        row["title"] and row["explanation"] and row["severity"] in ("error", "warning") for row in rows
    )
    assert run(["rules", "bool-value"]) == 0
    assert "trailing" in capsys.readouterr().out
    assert run(["rules", "bool-vlaue"]) == 1
    assert "did you mean bool-value" in capsys.readouterr().err
    assert run(["rules"]) == 0
    assert "ensemble-scramble" in capsys.readouterr().out
