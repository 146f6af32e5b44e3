"""On a real server: figures that the server itself confirms, a damaged model that the gate catches, tune."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.support.engine_repo import smollm2_gguf

pytestmark = [pytest.mark.server, pytest.mark.slow]
PROMPTS = (
    "The capital of France is", "Water boils at a temperature of", "Once upon a time there was a",
    "The opposite of hot is", "Two plus two equals", "In the morning the sun", "A dog is an animal that",
    "The first month of the year is",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("measure")


@pytest.fixture(scope="module")
def trtbuild(folder):
    import os

    environment = {
        **os.environ,
        "TRTBUILD_STATE": str(folder / "state"),
        "TRTBUILD_RUNS": str(folder / "r.sqlite"),
    }

    def call(*args: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "trtbuild", *args]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=environment, timeout=280, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return call


def build(trtbuild, output: str, weights: Path) -> None:
    small = ("--max-input", "512", "--max-output", "64", "--concurrency", "4")
    trtbuild(
        "--model", "smollm2-135m", "--weights", str(weights), "--target", "local", *small, "--output", output
    )


@pytest.fixture(scope="module")
def repository(trtbuild):
    build(trtbuild, "repo", smollm2_gguf())
    return "repo"


@pytest.fixture(scope="module")
def address(trtbuild, repository):
    """Of a server of the undamaged model."""
    trtbuild("serve", repository, "--detach")
    try:
        (row,) = json.loads(trtbuild("status", repository, "--json"))
        yield row["grpc"]
    finally:
        trtbuild("stop", repository)


HEAD_ROWS = 64  # of SmolLM2's key and value projections
SCALES_BYTES = 4  # of Q4_1's block of 32 weights: scale and minimum


def zeroed_layer(name: str, data: Any) -> None:
    """The second layer adds nothing: its two output projections are zero."""
    if name in ("blk.1.ffn_down.weight", "blk.1.attn_output.weight"):
        data[:] = 0


def wrong_group_size(name: str, data: Any) -> None:
    """Scales are taken for groups of 64 where the weights were rounded in groups of 32."""
    if ".ffn_" in name and "norm" not in name:
        pairs = data.reshape(-1, 2, 20)
        pairs[:, 1, :SCALES_BYTES] = pairs[:, 0, :SCALES_BYTES]


def shifted_kv(name: str, data: Any) -> None:
    """Every group of queries meets the keys and values of the next group."""
    if ".attn_k." in name or ".attn_v." in name:
        data[:] = np.roll(data, HEAD_ROWS, axis=0)


def damaged(path: Path, damage: Callable[[str, Any], None]) -> Path:
    """A copy of the weights, each tensor (rows of quantised blocks) as ``damage`` leaves it."""
    from gguf import GGUFReader

    shutil.copyfile(smollm2_gguf(), path)
    reader = GGUFReader(path, "r+")
    for tensor in reader.tensors:
        damage(tensor.name, tensor.data)
    reader.data.flush()
    return path


@pytest.mark.alone
def test_the_servers_own_counts_agree_with_what_came(trtbuild, repository):
    trtbuild("serve", repository, "--detach")
    try:
        load = ("--users", "4", "--traffic", "48/16", "--duration", "10", "--warmup", "2")
        record = json.loads(trtbuild("bench", *load, "--json"))
        findings = json.loads(trtbuild("diagnose", record["run_id"], "--json"))
    finally:
        trtbuild("stop", repository)
    assert record["state"] == "complete"
    measured = [one for one in record["requests"] if one["outcome"] == "ok"]
    assert {one["output_tokens"] for one in measured} == {16}
    assert all(sum(one["arrival_tokens"]) == 16 for one in measured)
    assert all(abs(one["prompt_tokens"] - 48) <= 3 for one in measured)
    series = {row[2] for row in record["timeline"]}
    assert {"generation", "kv_used", "kv_max", "iteration", "tokens_out", "cpu_cores", "rss_bytes"} <= series
    told = [row[3] for row in record["timeline"] if row[2] == "tokens_out"]
    came = sum(sum(one["arrival_tokens"]) for one in record["requests"])
    assert came / 2 < max(told) <= came + 64  # of all classes; the last second is not told yet
    assert not [text for text in record["notes"] if text.startswith("impossible")]
    assert record["deployment"]["plan"]["models"][0]["max_batch_size"] == 4
    assert findings["limits"]


def ask(trtbuild, folder, address: str, candidate: str, code: int = 0) -> dict[str, Any]:
    (folder / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": text}) for text in PROMPTS))
    # one at a time: the CPU engine's answers depend a little on what is computed beside them
    asked = (
        "--model",
        "smollm2-135m",
        "--prompts",
        "prompts.jsonl",
        "--max-tokens",
        "24",
        "--concurrency",
        "1",
    )
    return json.loads(trtbuild("quality", address, candidate, *asked, "--no-needles", "--json", code=code))


def next_token_kept(report: dict[str, Any]) -> bool:
    return next(one for one in report["gate"] if one["name"] == "next-token")["kept"]


def test_the_model_itself_passes(trtbuild, address, folder):
    assert next_token_kept(ask(trtbuild, folder, address, address))


@pytest.mark.parametrize("damage", [zeroed_layer, wrong_group_size, shifted_kv])
def test_a_damaged_model_is_caught(trtbuild, address, folder, damage):
    name = damage.__name__
    build(trtbuild, name, damaged(folder / f"{name}.gguf", damage))
    worse = ask(trtbuild, folder, address, name, code=1)
    assert worse["groups"]["next token"]["agreement"]["value"] < 0.8
    assert not next_token_kept(worse)


@pytest.mark.alone
def test_tune_tries_other_batches_and_writes_the_spec_of_the_best(trtbuild, folder):
    small = ("--max-input", "256", "--max-output", "32", "--concurrency", "1")
    trtbuild("--model", "smollm2-135m", "--quant", "int4", "--target", "local", *small, "--output", "narrow")
    load = ("--shape", "closed:8", "--traffic", "32/16", "--duration", "6", "--warmup", "2")
    limits = ("--budget", "3", "--percentile", "50", "--only", "max_batch_size", "--trials", "3")
    found = json.loads(trtbuild("tune", "narrow", *load, *limits, "--json", "-o", "tuned.yaml"))
    assert found["best"]["score"] >= found["begin"]["score"]  # by how much is the machine's matter
    knob = "smollm2-135m.max_batch_size"
    assert max(trial["settings"].get(knob, 1) for trial in found["trials"]) > 1
    spec = yaml.safe_load((folder / "tuned.yaml").read_text())
    assert spec["models"][0]["concurrency"] == found["best"]["settings"].get(knob, 1)
