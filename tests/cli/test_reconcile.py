"""``trtbuild reconcile``: a plan whose estimates are replaced by what a log says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trtbuild.cli import run

QWEN = ["--model", "qwen-7b", "--quant", "awq", "--gpu", "l4", "--no-build"]
MIB = 1 << 20
# The runtime's lines; sizes of a Qwen2.5-7B AWQ engine: 5.3 GB of weights, activations smaller than planned.
LOG = """
[TensorRT-LLM][INFO] TRTGptModel maxBatchSize: 32
[TensorRT-LLM][INFO] TRTGptModel maxNumTokens: 2048
[TensorRT-LLM][INFO] Loaded engine size: 5310 MiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 240.00 MiB for execution context memory.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 20.00 MB GPU memory for runtime buffers.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 60.00 MB GPU memory for decoder.
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 22.03 GiB, available: 15.60 GiB
[TensorRT-LLM][INFO] Number of tokens per block: 32.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 8.75 GiB for max tokens in paged KV cache (163840).
"""  # noqa: E501


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(repo: str = "model_repo") -> dict[str, Any]:
    return dict(json.loads(Path(repo, "plan.json").read_text()))


def log(text: str, name: str = "server.log") -> str:
    Path(name).write_text(text)
    return name


def test_what_the_log_says_takes_the_place_of_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(QWEN) == 0
    before = plan()
    engine = Path("model_repo/qwen-7b_engine/1")
    for name in ("config.json", "rank0.engine"):
        (engine / name).write_text("built")
    capsys.readouterr()
    assert run(["reconcile", log(LOG)]) == 0
    shown = capsys.readouterr()
    assert "activations" in shown.out
    assert "240.0 MiB" in shown.out
    after = plan()
    old, new = before["models"][0], after["models"][0]
    assert new["weights_bytes"] == 5310 * MIB
    assert new["engine_copy_bytes"] == 0  # the log's weights are all that the engine holds
    assert new["activation_bytes"] == 240 * MIB
    assert new["buffer_bytes"] == 80 * MIB
    assert after["gpu"] == before["gpu"]
    assert (
        sum(item["bytes"] for item in after["ledger"]) + after["free_bytes"] == after["gpu"]["memory_bytes"]
    )
    assert any(item["why"].endswith("; by server.log") for item in after["ledger"])
    for key in ("max_batch_size", "max_num_tokens", "max_seq_len"):  # what an engine is compiled for
        assert new[key] == old[key]
    assert (engine / "rank0.engine").read_text() == "built"
    # It is in the description: written again from it, or once more with the same log, nothing changes.
    assert run(["--spec", "model_repo/deployment.yaml", "--no-build", "--output", "again"]) == 0
    assert plan("again")["models"] == after["models"]
    assert run(["reconcile", "server.log"]) == 0
    assert plan() == after


def test_a_dry_run_shows_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(QWEN) == 0
    before = Path("model_repo/plan.json").read_bytes()
    capsys.readouterr()
    assert run(["reconcile", log(LOG), "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = {row["item"]: row for row in answer["differences"]}
    assert rows["activations"]["said"] == rows["activations"]["now"] == 240 * MIB
    assert Path("model_repo/plan.json").read_bytes() == before


def test_a_build_log_tells_weights_and_activations_alone() -> None:
    assert run(QWEN) == 0
    buffers = plan()["models"][0]["buffer_bytes"]
    text = "[TRT] [I] Total Activation Memory: 281018368 bytes\n"
    text += "[TRT] [I] Total Weights Memory: 5600000000 bytes\n"
    assert run(["reconcile", log(text, "compile.log")]) == 0
    llm = plan()["models"][0]
    assert (llm["weights_bytes"], llm["activation_bytes"]) == (5_600_000_000, 281_018_368)
    assert llm["buffer_bytes"] == buffers  # no build says it


def test_an_engine_of_another_shape_corrects_the_estimate_by_its_ratio() -> None:
    assert run(QWEN) == 0
    old = plan()["models"][0]
    # The estimate for the measured shape is nearly the plan's own, so twice of it stays about twice.
    said = 2 * old["activation_bytes"] / MIB
    text = LOG.replace("maxNumTokens: 2048", "maxNumTokens: 4096").replace("240.00", f"{2 * said:.2f}")
    assert run(["reconcile", log(text)]) == 0
    assert plan()["models"][0]["activation_bytes"] == pytest.approx(2 * old["activation_bytes"], rel=0.1)


def test_what_else_the_log_gives_away_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(QWEN) == 0
    text = LOG.replace("8.75 GiB for max tokens in paged KV cache (163840)",
                       "0.10 GiB for max tokens in paged KV cache (1792)")  # fmt: skip
    text += "[WARNING] maxAttentionWindow and maxSequenceLen are too large for it. they are reduced to 1792\n"
    text = text.replace("maxBatchSize: 32", "maxBatchSize: 64")
    capsys.readouterr()
    assert run(["reconcile", log(text)]) == 0
    said = capsys.readouterr().err
    assert "cut its longest sequence to 1792 tokens" in said
    assert "holds 1792 tokens and 163840 were planned" in said
    assert "max_batch_size 64; the plan has 32" in said


def test_of_two_models_the_weights_tell_which(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QWEN[:-1], "--no-build", "--gpu", "a100-80g"]) == 0
    assert run(["add", "--model", "qwen2.5-0.5b", "--quant", "awq", "--concurrency", "4", "--no-build"]) == 0
    assert run(["reconcile", log(LOG)]) == 0
    models = {model["name"]: model for model in plan()["models"]}
    assert models["qwen-7b"]["measured_by"] == "server.log"
    assert models["qwen2.5-0.5b"]["measured_by"] is None
    capsys.readouterr()
    assert run(["reconcile", log(LOG.replace("5310", "20000"), "other.log")]) == 1
    assert "--model qwen-7b" in capsys.readouterr().err
    assert run(["reconcile", "other.log", "--model", "nobody"]) == 1


@pytest.mark.parametrize("text", ["", "I0101 server.cc:1 started\n", "\x00\x01"])
def test_a_log_without_a_word_of_memory_says_what_is_looked_for(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(QWEN) == 0
    assert run(["reconcile", log(text)]) == 1
    assert "TLLM_LOG_LEVEL=INFO" in capsys.readouterr().err
    assert run(["reconcile", "missing.log"]) == 1


def test_weights_that_leave_no_room_are_refused_and_the_repository_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(QWEN) == 0
    before = Path("model_repo/plan.json").read_bytes()
    assert run(["reconcile", log(LOG.replace("5310", "21000"))]) == 1
    assert Path("model_repo/plan.json").read_bytes() == before
