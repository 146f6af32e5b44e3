"""``trtbuild build`` on a machine with a GPU, on one without, and the script that goes on from it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.support.gpu_host import COMMIT, GpuHost, hub
from tests.support.tiny_checkpoints import CONFIG, awq_tensors, safetensors_bytes, whole_model, write_model
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import WordLevel

from trtbuild import prepare as prepare_module
from trtbuild.build.commands import Command
from trtbuild.build.jobs import JobOptions
from trtbuild.build.runner import BuildSettings, decide
from trtbuild.cli import run
from trtbuild.plan.model import Plan
from trtbuild.preflight import host as host_module

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
SENTENCE = ["--model", "qwen-7b", "--quant", "awq"]
GIB = 1 << 30


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuHost:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prepare_module, "host_memory_bytes", lambda: 64 * GIB)
    monkeypatch.setattr(host_module.shutil, "disk_usage", lambda _: SimpleNamespace(free=200 * GIB))
    return GpuHost(tmp_path, monkeypatch)


@pytest.fixture
def hugging_face(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A hub with one AWQ checkpoint; gives the paths that were asked for."""
    files = {
        "config.json": json.dumps({**CONFIG, "quantization_config": AWQ}).encode(),
        "model.safetensors": safetensors_bytes(whole_model(awq_tensors())),
        "tokenizer.json": b"{}",
        "pytorch_model.bin": b"pickled",
    }
    with hub(files) as (address, asked):
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield asked


def commands_of(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[Command, ...]:
    """What a build would run, as the fakes must know it."""
    assert run([*arguments, "--dry-run", "--json", "--no-build"]) == 0
    plan = Plan.model_validate(json.loads(capsys.readouterr().out)["plan"])
    llm = plan.llms[0]
    return decide(llm, plan, BuildSettings(Path("unused"), JobOptions())).commands


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_sentence_on_a_gpu_host_ends_with_compiled_engines(
    host: GpuHost, hugging_face: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    host.makes(commands_of(*SENTENCE, capsys=capsys))
    assert run(SENTENCE) == 0
    captured = capsys.readouterr()
    assert "next: trtbuild serve" in captured.out
    assert tree(Path("model_repo/qwen-7b_engine/1")) == {".gitkeep", "config.json", "rank0.engine"}
    assert (Path("model_repo/qwen-7b/1/tokenizer") / "tokenizer.json").is_file()
    assert host.steps() == ["convert", "compile"]  # the fetch is done by the hub's own client
    assert not any("pytorch_model.bin" in path for path in hugging_face)  # nothing pickled
    for container in host.docker_runs():
        assert container["image"] == "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
    assert Path("model_repo.build/qwen-7b/source.pin").read_text().split()[1:] == ["main", COMMIT]
    assert run(SENTENCE) == 0
    assert host.steps() == []
    assert capsys.readouterr().err.count("is done") == 3


def test_a_dry_run_prints_the_exact_commands_and_runs_none(
    host: GpuHost, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*SENTENCE, "--dry-run", "--revision", COMMIT]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("would run for qwen-7b"))
    fetch, convert, compile_ = lines[start + 1 : start + 4]
    assert f"Qwen/Qwen2.5-7B-Instruct-AWQ {COMMIT} source.partial" in fetch
    assert convert.split()[:2] == ["docker", "run"]
    assert "trtllm-build --checkpoint_dir checkpoint" in compile_
    assert host.steps() == []
    assert host.docker_runs() == []
    assert not Path("model_repo").exists()
    assert not Path("model_repo.build").exists()


@pytest.mark.parametrize("first", ["trtbuild", "script"])
def test_the_script_and_the_command_take_over_what_the_other_has_made(
    host: GpuHost, hugging_face: list[str], capsys: pytest.CaptureFixture[str], first: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("FAKE_COMMIT", COMMIT)
    host.makes(commands_of(*SENTENCE, capsys=capsys))
    host.fault("compile:exit=1" if first == "trtbuild" else None)
    assert run([*SENTENCE, "--build" if first == "trtbuild" else "--no-build"]) == (first == "trtbuild")
    host.fault(None)
    capsys.readouterr()
    if first == "trtbuild":
        assert host.steps() == ["convert", "compile"]
        done = script()
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("is done") == 2
        assert host.steps() == ["compile"]
    else:
        # In the script the fetch runs in the container too: a fake, whose files must pass the check.
        monkeypatch.setenv("FAKE_FACTS", json.dumps({**json.loads(os.environ["FAKE_FACTS"]), **fetched()}))
        done = script()
        assert done.returncode == 0, done.stderr
        assert host.steps() == ["fetch", "convert", "compile"]
    assert run(SENTENCE) == 0
    assert host.steps() == []
    assert capsys.readouterr().err.count("is done") == 3
    assert "rank0.engine" in tree(Path("model_repo/qwen-7b_engine/1"))


def fetched() -> dict[str, dict[str, str]]:
    """A fetched folder that the fakes can write, as text: every tensor is there, in bytes that are zero."""
    config = json.dumps({**CONFIG, "quantization_config": AWQ})
    name = "model.layers.0.self_attn.q_proj"
    rows = {"qweight": 128, "qzeros": 1, "scales": 1}
    awq = {f"{name}.{part}": np.zeros((count, 1), np.int8) for part, count in rows.items()}
    tensors = {
        name: values if name in awq else np.zeros(1, np.int8) for name, values in whole_model(awq).items()
    }
    weights = safetensors_bytes(tensors).decode()
    return {"fetch": {"config.json": config, "model.safetensors": weights, "tokenizer.json": "{}"}}


def script() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "model_repo/build_engines.sh"], capture_output=True, text=True, check=False, timeout=60
    )


def test_without_a_gpu_what_needs_one_is_left_and_the_script_goes_on(
    host: GpuHost, hugging_face: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    host.makes(commands_of(*SENTENCE, capsys=capsys))
    host.gpu(None)
    assert run([*SENTENCE, "--build"]) == 0
    captured = capsys.readouterr()
    assert "left for another machine: convert, compile" in captured.err
    assert "there is no NVIDIA GPU here" in captured.err
    assert "build_engines.sh" in captured.out
    assert host.steps() == []
    host.gpu("8.9")
    done = script()
    assert done.returncode == 0, done.stderr
    assert "fetch is done" in done.stdout
    assert host.steps() == ["convert", "compile"]


def test_without_a_gpu_nothing_is_fetched_unless_it_is_asked_for(
    host: GpuHost, hugging_face: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    host.gpu(None)
    assert run(SENTENCE) == 0
    assert hugging_face == []
    assert not Path("model_repo.build").exists()


@pytest.mark.parametrize(
    ("what", "rule"),
    [("ram", "host.ram"), ("disk", "host.disk"), ("driver", "host.driver")],
)
def test_a_machine_that_cannot_build_it_is_told_before_anything_is_fetched(
    host: GpuHost,
    hugging_face: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: str,
    rule: str,
) -> None:
    if what == "ram":
        monkeypatch.setattr(prepare_module, "host_memory_bytes", lambda: 8 * GIB)
    elif what == "disk":
        monkeypatch.setattr(host_module.shutil, "disk_usage", lambda _: SimpleNamespace(free=4 * GIB))
    else:
        text = (host.bin / "nvidia-smi").read_text()
        host.put("nvidia-smi", text.replace("590.44.01", "470.57.02"))
    assert run([*SENTENCE, "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["plan"]["findings"]
    assert rule in {finding["id"] for finding in findings if finding["severity"] == "error"}
    assert hugging_face == []
    assert run([*SENTENCE, "--no-build", "--output", "elsewhere"]) == 0  # it is built on another machine


def test_what_an_earlier_build_holds_is_not_asked_of_the_disk_again(
    host: GpuHost,
    hugging_face: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host.makes(commands_of(*SENTENCE, capsys=capsys))
    assert run(SENTENCE) == 0
    monkeypatch.setattr(host_module.shutil, "disk_usage", lambda _: SimpleNamespace(free=14 * GIB))
    assert (
        run(SENTENCE) == 0
    )  # 5.3 GiB each of weights, checkpoint and engine, and 2 GiB: two of them lie there


FAULTS = [
    (step, fault) for step in ("convert", "compile") for fault in ("exit=3", "full", "missing", "wrong")
]


@pytest.mark.parametrize(("step", "fault"), FAULTS)
def test_a_step_that_fails_ends_the_command_and_leaves_no_engine(
    host: GpuHost, hugging_face: list[str], capsys: pytest.CaptureFixture[str], step: str, fault: str
) -> None:
    host.makes(commands_of(*SENTENCE, capsys=capsys))
    host.fault(f"{step}:{fault}")
    assert run(SENTENCE) == 1
    error = capsys.readouterr().err
    assert error.count("error: ") == 1
    assert "Traceback" not in error
    assert tree(Path("model_repo/qwen-7b_engine/1")) == {".gitkeep"}
    host.fault(None)
    assert run(SENTENCE) == 0
    assert "rank0.engine" in tree(Path("model_repo/qwen-7b_engine/1"))


def test_a_failed_fetch_says_what_the_hub_said(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with hub({}) as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        host.makes(commands_of(*SENTENCE, capsys=capsys))
        assert run(SENTENCE) == 1  # an empty repository: no config.json, no weights
    assert "fetch ended without an error" in capsys.readouterr().err
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # discard: nobody listens
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "1")
    assert run([*SENTENCE, "--output", "other"]) == 1
    assert "the hub cannot be asked about Qwen/Qwen2.5-7B-Instruct-AWQ" in capsys.readouterr().err


def test_a_container_asks_the_hub_where_its_client_is_not_installed(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trtbuild.build import places

    real = places._missing
    monkeypatch.setattr(places, "_missing", lambda name: "not here" if "hugging" in name else real(name))
    monkeypatch.setenv("FAKE_COMMIT", COMMIT)
    host.makes(commands_of(*SENTENCE, capsys=capsys))
    monkeypatch.setenv("FAKE_FACTS", json.dumps({**json.loads(os.environ["FAKE_FACTS"]), **fetched()}))
    assert run(SENTENCE) == 0
    assert Path("model_repo.build/qwen-7b/source.pin").read_text().split()[-1] == COMMIT
    assert host.steps() == ["fetch", "convert", "compile"]


def test_weights_in_the_local_hub_cache_are_taken_offline(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    host.makes(commands_of(*SENTENCE, capsys=capsys))
    assert run(SENTENCE) == 1
    assert "offline" in capsys.readouterr().err
    folder = Path(os.environ["HF_HOME"]) / "hub/models--Qwen--Qwen2.5-7B-Instruct-AWQ"
    snapshot = write_model(folder / "snapshots" / COMMIT, awq_tensors(), quantization_config=AWQ)
    (snapshot / "tokenizer.json").write_text("{}")
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text(COMMIT)
    assert run(SENTENCE) == 0
    assert host.steps() == ["convert", "compile"]
    mounted = [volume for entry in host.docker_runs() for volume in entry["options"]["--volume"]]
    assert f"{snapshot}:{snapshot}:ro" in mounted


def tokenizer(*words: str) -> str:
    made = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    made.decoder = ByteLevel()
    return str(made.to_str())


def test_the_llm_api_gets_the_weights_themselves(
    host: GpuHost, hugging_face: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "own")
    (folder / "tokenizer.json").write_text(tokenizer("a"))
    arguments = ["--model", str(folder), "--quant", "fp16", "--target", "llmapi", "--name", "own"]
    assert run(arguments) == 0
    checkpoint = Path("model_repo/own_engine/1/checkpoint")
    assert tree(checkpoint) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert host.steps() == []
    first = checkpoint.stat().st_ino
    assert run(arguments) == 0
    assert checkpoint.stat().st_ino == first
    changed = tokenizer("a", "b")
    (folder / "tokenizer.json").unlink()  # a repository holds the old one as a hard link
    (folder / "tokenizer.json").write_text(changed)
    assert run(arguments) == 0
    assert (checkpoint / "tokenizer.json").read_text() == changed


def test_the_newest_container_of_a_tensorrt_llm_version_can_be_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["plan", *SENTENCE, "--gpu", "l4", "--trtllm", "1.0.0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["container"] == "25.10"
    assert run(["plan", *SENTENCE, "--gpu", "l4", "--trtllm", "9.9"]) == 1
    assert "no container ships TensorRT-LLM 9.9" in capsys.readouterr().err
    assert run(["plan", *SENTENCE, "--trtllm", "1.0.0", "--container", "25.10"]) == 1
    assert "give one of them" in capsys.readouterr().err


def test_a_revision_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for revision in ("../main", "-x", "a b", ""):
        assert run(["plan", *SENTENCE, "--revision", revision]) == 1
        assert "revision" in capsys.readouterr().err


def lora(folder: Path, rank: int = 8) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank}))
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes({"x": np.ones(2, np.float16)}))
    return folder


def test_adapters_and_the_tokenizers_description_are_built_and_installed(
    host: GpuHost, hugging_face: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = lora(tmp_path / "adapters" / "fr")
    words = [*SENTENCE, "--lora", f"french={folder}", "--guided"]
    assert run([*words, "--dry-run", "--json", "--no-build"]) == 0
    plan = Plan.model_validate(json.loads(capsys.readouterr().out)["plan"])
    options = JobOptions(loras={"french": folder}, guided=True)
    host.makes(decide(plan.llms[0], plan, BuildSettings(Path("unused"), options)).commands)
    assert run(words) == 0
    assert host.steps() == ["convert", "lora-french", "tokenizer-info", "compile"]
    assert tree(Path("model_repo/qwen-7b_engine/1")) == {
        ".gitkeep", "config.json", "rank0.engine", "xgrammar_tokenizer_info.json",
        "lora/french/model.lora_weights.npy", "lora/french/model.lora_config.npy",
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 4}))
    assert run(words) == 0  # only what an adapter touches is made again
    assert host.steps() == ["lora-french", "compile"]
    assert run([*words, "--container", "25.04", "--output", "old"]) == 1  # 0.18.2 has no guided decoding
    assert "came with TensorRT-LLM 0.19.0" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["french", "=folder", "french="])
def test_an_adapter_needs_a_name_and_a_folder(value: str) -> None:
    assert run(["plan", *SENTENCE, "--lora", value]) == 2


def test_an_adapter_that_is_none_is_refused_before_anything_is_fetched(
    host: GpuHost, hugging_face: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run([*SENTENCE, "--lora", f"a={tmp_path}"]) == 1
    assert "adapter_model.safetensors" in capsys.readouterr().err
    assert hugging_face == []
