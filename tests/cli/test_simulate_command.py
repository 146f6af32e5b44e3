"""``trtbuild simulate``: tables, JSON, and what is refused."""

from __future__ import annotations

import json

import pytest

from trtbuild.cli import run

L4 = ["simulate", "--model", "qwen-7b", "--quant", "awq", "--gpu", "l4", "--requests", "100"]


def test_levels_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*L4, "--rate", "0.5", "--users", "4", "--price", "0.8", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    slow, users = data["levels"]
    assert slow["level"] == {"rate": 0.5, "users": None}
    assert users["level"] == {"rate": None, "users": 4}
    first = slow["ttft_s"]["95"]
    assert 0 < first["low"] < first["value"] < first["high"]
    per_s = slow["tokens_out_per_s"]["value"]
    assert slow["cost_per_million_tokens"] == pytest.approx(0.8 / 3600 / per_s * 1e6)
    assert any("published figure" in text for text in data["notes"])


def test_a_budget_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*L4, "--ttft-ms", "800", "--rate", "1", "--fleet-rate", "8", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "TTFT P95 ≤ 800 ms: up to" in out
    assert "max_batch_size" in out
    assert "8 requests a second:" in out
    assert "reads 3.47 GB of weights each step" in out


def test_a_budget_that_cannot_be_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*L4, "--ttft-ms", "1", "--rate", "1"]) == 0
    assert "not even one request alone keeps it; the nearest is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fleet-rate", "5"], "give --ttft-ms too"),
        (["--pictures", "5"], "belong together"),
        (["--shared-prefix", "600"], "leaves nothing of a prompt of 500 tokens"),
    ],
)
def test_wrong_usage(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*L4, *options]) == 2
    assert words in " ".join(capsys.readouterr().err.replace("│", "").split())


def test_a_cpu_needs_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--model", "smollm2-135m", "--quant", "int4", "--target", "local"]) == 1
    assert "--from-run RUN" in capsys.readouterr().err


def test_what_does_not_fit_is_not_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--model", "llama-3.1-70b", "--quant", "bf16", "--gpu", "l4"]) == 1
    assert "what does not fit cannot be simulated" in capsys.readouterr().err
