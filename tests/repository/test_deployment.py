"""launch.sh, build_engines.sh and the Dockerfile: what they run, and what they do when it goes wrong."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.tiny_checkpoints import write_model

from trtbuild.catalog.versions import containers, find_container
from trtbuild.repository import launch
from trtbuild.spec import Target

RELEASES = [container.release for container in containers()]
NVIDIA_SMI = "#!/bin/sh\necho 8.9\n"
RECORDER = f"#!{sys.executable}\n" + (Path(__file__).parents[1] / "support" / "fake_tool.py").read_text()


class Host:
    """A machine with docker, TensorRT-LLM's tools and a GPU, all of them recorders."""

    def __init__(self, shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shop = shop
        self.bin = shop.folder / "bin"
        self.bin.mkdir()
        self.log = shop.folder / "calls.jsonl"
        for name, text in {"docker": RECORDER, "trtllm-build": RECORDER, "nvidia-smi": NVIDIA_SMI}.items():
            self.put(name, text)
        monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_LOG", str(self.log))
        self.environment: dict[str, str] = {}

    def put(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def prepare(self, plan: Any, quant_algo: str | None = "W4A16_GPTQ") -> None:
        """Writes the repository, and tells the recorders what a right product says."""
        self.shop.write(plan)
        llm = plan.llms[0]
        kv = {"fp8": "FP8", "int8": "INT8"}.get(llm.kv_dtype)
        mapping = {"tp_size": llm.tp}
        quantization = {"quant_algo": quant_algo, "kv_cache_quant_algo": kv}
        build = {key: getattr(llm, key) for key in ("max_batch_size", "max_num_tokens", "max_seq_len")}
        build["plugin_config"] = {"tokens_per_block": llm.tokens_per_block, "use_paged_context_fmha": True}
        engine = {"version": "1.2.1", "pretrained_config": {"mapping": mapping}, "build_config": build}
        self.environment = {
            "FAKE_CHECKPOINT": json.dumps({"quantization": quantization, "mapping": mapping}),
            "FAKE_ENGINE": json.dumps(engine),
            "FAKE_IMAGE": find_container(plan.container).image,
        }

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(self.shop.repo / script), *arguments],
            env={**os.environ, **self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            start_new_session=True,  # a kill of its group is not ours
        )

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def steps(self) -> list[str]:
        """What ran inside the container, a word for each."""
        names = {"snapshot_download": "fetch", "convert_checkpoint": "convert", "quantize.py": "quantise"}
        names["trtllm-build"] = "compile"
        found = []
        for call in self.calls():
            text = " ".join(call["argv"])
            found += [name for key, name in names.items() if key in text]
        return found


@pytest.fixture
def host(shop: Any, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(shop, monkeypatch)


@pytest.mark.parametrize("release", RELEASES)
def test_scripts_are_valid_for_every_container(shop: Any, release: str) -> None:
    other = shop.llm("other", source="meta-llama/Llama-3.1-8B-Instruct", quant="int8", dtype="bfloat16")
    quant = "fp16" if release < "24.12" else "awq"  # importing AutoAWQ came with 0.16
    shop.write(shop.plan(shop.llm(quant=quant), other, shop.ocr(), container=release))
    for script in ("launch.sh", "build_engines.sh"):
        subprocess.run(["bash", "-n", shop.repo / script], check=True)
        if shutil.which("shellcheck"):
            subprocess.run(["shellcheck", shop.repo / script], check=True)


@pytest.mark.parametrize(
    ("release", "bounded"), [("24.12", False), ("25.02", False), ("25.03", True), ("26.07", True)]
)
def test_a_flag_is_passed_only_to_servers_that_have_it(shop: Any, release: str, bounded: bool) -> None:
    options = launch.server_options(shop.plan(shop.llm()), find_container(release))
    assert any(option.startswith("--grpc-max-response-pool-size=") for option in options) is bounded


def test_the_response_pool_holds_more_than_the_longest_answer(shop: Any) -> None:
    options = launch.server_options(shop.plan(shop.llm(max_output_tokens=9000)), find_container("26.07"))
    assert "--grpc-max-response-pool-size=18000" in options


def test_one_engine_runs_inside_the_server(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    printed = host.run("launch.sh", "--print").stdout
    assert "TRTLLM_ORCHESTRATOR" not in printed
    assert "mpirun" not in printed


@pytest.mark.parametrize("models", [2, 1])
def test_several_engines_need_the_orchestrator(shop: Any, host: Host, models: int) -> None:
    llms = [shop.llm("a"), shop.llm("b")] if models == 2 else [shop.llm(instances=2)]
    host.prepare(shop.plan(*llms))
    printed = host.run("launch.sh", "--print").stdout
    assert "TRTLLM_ORCHESTRATOR=1" in printed
    assert "OMPI_ALLOW_RUN_AS_ROOT=1" in printed
    assert "--cuda-memory-pool-byte-size=0:0" in printed


def test_a_split_engine_gets_one_process_a_gpu(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm(tp=2)))
    printed = host.run("launch.sh", "--print").stdout
    assert printed.count("/opt/tritonserver/bin/tritonserver") == 2
    assert printed.count("--load-model=qwen-7b_engine") == 1  # the first rank loads everything
    assert printed.count("--model-control-mode=explicit") == 1


def test_the_server_is_reached_over_loopback_only_and_its_control_is_off(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    printed = host.run("launch.sh", "--print", GRPC_PORT="9001").stdout
    assert "-p 127.0.0.1:9001:9001" in printed
    assert "TRTBUILD_GRPC_ADDRESS=127.0.0.1:9001" in printed
    assert "--model-control-mode=none" in printed
    keys = {word.split("=")[-1] for word in printed.split() if "restricted" in word}
    assert all(len(key) == 32 for key in keys)
    again = host.run("launch.sh", "--print", GRPC_PORT="9001").stdout
    assert keys.isdisjoint({word.split("=")[-1] for word in again.split() if "restricted" in word})


def test_the_repository_is_mounted_read_only_and_the_shm_is_the_plans(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    printed = host.run("launch.sh", "--print").stdout
    assert f"-v {shop.repo}:/repository:ro -w /repository" in printed
    # Five Python instances (front, 2 pre-processing, 1 post-processing, 1 spare) of 1 MiB, and 256 MiB.
    assert f"--shm-size={5 * 1048576 + (256 << 20)}" in printed
    assert f"--user {os.getuid()}:{os.getgid()}" in printed


def test_launching_without_engines_says_what_is_missing(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    result = host.run("launch.sh")
    assert result.returncode == 1
    assert "qwen-7b_engine/1/config.json" in result.stderr
    assert "./build_engines.sh" in result.stderr
    assert host.calls() == []


def test_launching_without_the_networks_of_a_vision_model_says_how_to_get_them(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm(), shop.ocr()))
    assert host.run("build_engines.sh").returncode == 0
    result = host.run("launch.sh")
    assert result.returncode == 1
    assert "ocr_det/1/model.onnx" in result.stderr
    assert "pip install --no-deps rapidocr" in result.stderr


def test_compose_is_the_same_launch(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm(), shop.ocr()))
    (service,) = yaml.safe_load((shop.repo / "compose.yaml").read_text())["services"].values()
    printed = host.run("launch.sh", "--print").stdout
    assert service["image"] == "trtbuild-tritonserver:26.07-vision"
    assert f"--shm-size={service['shm_size']} " in printed
    assert f"--stop-timeout {service['stop_grace_period'].removesuffix('s')} " in printed
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["volumes"] == [".:/repository:ro"]
    # Inside it launches what --print shows, on all addresses of the container, and asks docker for nothing.
    assert service["command"] == ["/repository/launch.sh", "--inside"]
    assert host.run("build_engines.sh").returncode == 0
    for role in ("det", "cls", "rec"):
        (shop.repo / f"ocr_{role}/1/model.onnx").touch()
    host.log.unlink()
    result = host.run("launch.sh", "--inside")
    assert "/opt/tritonserver/bin/tritonserver" in result.stderr  # which is not on this machine
    assert host.calls() == []


def test_launching_builds_the_image_once_without_a_context(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    assert host.run("build_engines.sh").returncode == 0
    host.log.unlink()
    result = host.run("launch.sh", FAKE_IMAGE="trtbuild-tritonserver:26.07")
    assert result.returncode == 0, result.stderr
    inspect, build, remove, run = (call["argv"][1:] for call in host.calls())
    assert inspect[:2] == ["image", "inspect"]
    assert build == ["build", "-t", "trtbuild-tritonserver:26.07", "-"]
    assert remove == ["rm", "--force", "trtbuild-8001"]
    assert run[0] == "run"


def test_the_image_takes_backends_for_vision_from_the_matching_release(shop: Any) -> None:
    shop.write(shop.plan(shop.llm(), shop.ocr(), container="25.10"))
    lines = (shop.repo / "Dockerfile").read_text().splitlines()
    assert "FROM nvcr.io/nvidia/tritonserver:25.07-py3 AS vision" in lines
    assert "FROM nvcr.io/nvidia/tritonserver:25.10-trtllm-python-py3" in lines
    assert any(line.startswith("COPY --from=vision") and "onnxruntime" in line for line in lines)
    shop.write(shop.plan(shop.llm(), container="25.10"), output=shop.folder / "text")
    assert "vision" not in (shop.folder / "text/Dockerfile").read_text()


def test_a_build_runs_its_steps_in_the_container_and_installs_the_products(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    result = host.run("build_engines.sh", HF_TOKEN="hf_secret")
    assert result.returncode == 0, result.stderr
    assert host.steps() == ["fetch", "convert", "compile"]
    engine = shop.repo / "qwen-7b_engine/1"
    assert {path.name for path in engine.iterdir()} == {".gitkeep", "config.json", "rank0.engine"}
    assert (shop.repo / "qwen-7b/1/tokenizer/tokenizer.json").is_file()
    for call in host.calls():
        assert not any("hf_secret" in word for word in call["argv"])  # by name only
        assert call["env"]["HF_TOKEN"] == "hf_secret"
    compile_call = next(call["argv"] for call in host.calls() if "trtllm-build" in call["argv"])
    assert compile_call[compile_call.index("--gpus") + 1] == "all"
    assert f"{os.getuid()}:{os.getgid()}" in compile_call
    assert compile_call[compile_call.index("--max_num_tokens") + 1] == "2048"
    assert {path.name for path in shop.repo.iterdir() if path.is_dir()} == set(
        json.loads((shop.repo / "trtbuild.json").read_text())["models"]["qwen-7b"]["folders"]
    )


def test_the_published_awq_checkpoint_is_taken_and_said(shop: Any) -> None:
    shop.write(shop.plan(shop.llm(quant="awq")))
    script = (shop.repo / "build_engines.sh").read_text()
    assert "Qwen/Qwen2.5-7B-Instruct-AWQ" in script
    assert "# taking Qwen/Qwen2.5-7B-Instruct-AWQ" in script


def test_a_second_run_repeats_nothing(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    host.run("build_engines.sh")
    before = len(host.calls())
    result = host.run("build_engines.sh")
    assert result.returncode == 0, result.stderr
    assert len(host.calls()) == before
    assert result.stdout.count("is done") == 3


@pytest.mark.parametrize(
    ("word", "done"),
    [("snapshot_download", []), ("convert_checkpoint", ["fetch"]), ("trtllm-build", ["fetch", "convert"])],
)
def test_a_failing_step_stops_the_build_and_the_next_run_starts_there(
    shop: Any, host: Host, word: str, done: list[str]
) -> None:
    host.prepare(shop.plan(shop.llm()))
    result = host.run("build_engines.sh", FAKE_FAIL=word)
    assert result.returncode != 0
    assert "failed; its output is in" in result.stderr
    assert "the tool's own words" in result.stderr
    assert not (shop.repo / "qwen-7b_engine/1/config.json").exists()
    host.log.unlink()
    assert host.run("build_engines.sh").returncode == 0
    assert host.steps() == [step for step in ("fetch", "convert", "compile") if step not in done]


@pytest.mark.parametrize("when", ["{}@", "@{}"], ids=["before", "behind"])
@pytest.mark.parametrize(
    ("word", "done"),
    [("snapshot_download", []), ("convert_checkpoint", ["fetch"]), ("trtllm-build", ["fetch", "convert"])],
)
def test_a_build_killed_within_a_step_loses_that_step_alone(
    shop: Any, host: Host, word: str, done: list[str], when: str
) -> None:
    host.prepare(shop.plan(shop.llm()))
    assert host.run("build_engines.sh", FAKE_KILL=when.format(word)).returncode == -9
    assert not (shop.repo / "qwen-7b_engine/1/config.json").exists()
    host.log.unlink()
    result = host.run("build_engines.sh")
    assert result.returncode == 0, result.stderr
    assert host.steps() == [step for step in ("fetch", "convert", "compile") if step not in done]
    engine = shop.repo / "qwen-7b_engine/1"
    assert {path.name for path in engine.iterdir()} == {".gitkeep", "config.json", "rank0.engine"}


@pytest.mark.parametrize("word", ["convert_checkpoint", "trtllm-build"])
def test_a_step_that_ends_well_with_an_empty_product_is_a_failure(shop: Any, host: Host, word: str) -> None:
    host.prepare(shop.plan(shop.llm()))
    result = host.run("build_engines.sh", FAKE_EMPTY=word)
    assert result.returncode != 0
    assert "lacks one of" in result.stderr
    assert not (shop.repo / "qwen-7b_engine/1/config.json").exists()


def test_a_product_that_says_something_else_than_was_asked_for_is_refused(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    other = json.loads(host.environment["FAKE_ENGINE"])
    other["build_config"]["max_batch_size"] = 1
    result = host.run("build_engines.sh", FAKE_ENGINE=json.dumps(other))
    assert result.returncode != 0
    assert "build_config.max_batch_size is 1, and 32 was asked for" in result.stderr
    assert not (shop.folder / "model_repo.build/qwen-7b/engine").exists()


def test_a_changed_plan_compiles_again_and_fetches_nothing(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    host.run("build_engines.sh")
    host.log.unlink()
    host.prepare(shop.plan(shop.llm(max_num_tokens=4096)))
    result = host.run("build_engines.sh")
    assert result.returncode == 0, result.stderr
    assert host.steps() == ["compile"]


def test_an_engine_is_not_compiled_for_another_gpu(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    host.put("nvidia-smi", "#!/bin/sh\necho 9.0\n")
    result = host.run("build_engines.sh")
    assert result.returncode == 1
    assert "compute capability 8.9" in result.stderr
    assert "9.0" in result.stderr
    assert host.calls() == []


def test_a_machine_without_a_gpu_is_told_before_anything_is_fetched(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    host.put("nvidia-smi", "#!/bin/sh\nexit 9\n")
    result = host.run("build_engines.sh")
    assert "no GPU" in result.stderr
    assert host.calls() == []


def test_two_builds_at_once_do_not_meet(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    work = shop.folder / "model_repo.build/qwen-7b"
    work.mkdir(parents=True)
    with subprocess.Popen(
        ["flock", work / ".lock", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(b"x\n")
        holder.stdin.flush()
        holder.stdout.readline()  # cat runs, so the lock is held
        result = host.run("build_engines.sh")
        holder.stdin.close()
    assert result.returncode == 1
    assert "another build is running" in result.stderr


def test_local_weights_are_mounted_where_they_lie(shop: Any, host: Host) -> None:
    folder = local_checkpoint(shop)
    host.prepare(shop.plan(shop.llm(weights_path=str(folder), quant="fp16")), None)
    result = host.run("build_engines.sh")
    assert result.returncode == 0, result.stderr
    assert host.steps() == ["convert", "compile"]
    convert = next(call["argv"] for call in host.calls() if "--model_dir" in call["argv"])
    assert f"{folder}:{folder}:ro" in convert


def test_here_runs_the_tools_of_this_machine(shop: Any, host: Host) -> None:
    folder = local_checkpoint(shop)
    host.put("python3", RECORDER)
    host.prepare(shop.plan(shop.llm(weights_path=str(folder), quant="fp16")), None)
    result = host.run("build_engines.sh", "--here")
    assert result.returncode == 0, result.stderr
    assert not any(Path(call["argv"][0]).name == "docker" for call in host.calls())
    assert all(call["cwd"] == str(shop.folder / "model_repo.build/qwen-7b") for call in host.calls())


def local_checkpoint(shop: Any) -> Path:
    """A small Hugging Face folder."""
    folder = write_model(shop.folder / "weights of a user")
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_print_runs_nothing_and_needs_nothing(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm()))
    host.put("nvidia-smi", "#!/bin/sh\nexit 9\n")
    result = host.run("build_engines.sh", "--print")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 3
    assert host.calls() == []
    assert not (shop.folder / "model_repo.build").exists()


def test_a_folder_at_hand_is_mounted_once(shop: Any, host: Host) -> None:
    """Its files lie in itself; podman refuses the same destination twice."""
    folder = local_checkpoint(shop)
    host.prepare(shop.plan(shop.llm(weights_path=str(folder), quant="fp16")), None)
    for line in host.run("build_engines.sh", "--print").stdout.splitlines():
        words = shlex.split(line)
        mounted = [words[at + 1] for at, word in enumerate(words) if word == "-v"]
        assert f"{folder}:{folder}:ro" in mounted
        assert len(set(mounted)) == len(mounted)


def test_the_llm_api_gets_its_checkpoint_and_no_engine(shop: Any, host: Host) -> None:
    host.prepare(shop.plan(shop.llm(quant="fp16"), target=Target.LLMAPI), None)
    host.put("nvidia-smi", "#!/bin/sh\nexit 9\n")  # nothing is compiled: no GPU is asked for
    for _ in range(2):
        result = host.run("build_engines.sh")
        assert result.returncode == 0, result.stderr
    assert host.steps() == ["fetch"]
    checkpoint = shop.repo / "qwen-7b_engine/1/checkpoint"
    assert {path.name for path in checkpoint.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }
    printed = host.run("launch.sh", "--print").stdout
    assert "TRTLLM_ORCHESTRATOR" not in printed
    report = shop.write(shop.plan(shop.llm(quant="fp16", kv_tokens=1024), target=Target.LLMAPI))
    assert "qwen-7b_engine/1/checkpoint/model.safetensors" in report.kept_products


@pytest.mark.parametrize("script", ["launch.sh", "build_engines.sh"])
def test_an_unknown_option_is_refused(shop: Any, host: Host, script: str) -> None:
    host.prepare(shop.plan(shop.llm()))
    result = host.run(script, "--her")
    assert result.returncode == 1
    assert "unknown option --her" in result.stderr
