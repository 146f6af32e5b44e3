"""No false alarm: our own repositories, NVIDIA's templates filled, configs of the shape that people write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.lint_repo import FACTS, found, nvidia, parameter, write
from tests.support.plans import llm_plan, ocr_plan, plan_of, spec_of

from trtbuild.lint.run import lint
from trtbuild.repository.writer import write_repository
from trtbuild.spec import Target

VERSIONS = sorted(path.stem for path in FACTS.glob("*.json"))
# Facts of branches: the newest container built from them.
CONTAINERS = {
    "0.12.0-24.08": "24.08",
    "0.16.0": "24.12",
    "0.19.0+25.05": "25.05",
    "1.0.0": "25.10",
    "1.2.0": "26.03",
}


def write_ours(repo: Path, folder: Path, plan: Any) -> None:
    assets: dict[str, Path] = {}
    weights: dict[str, Path] = {}
    if plan.target is Target.LOCAL:
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "tokenizer.json").write_text("{}")
        (folder / "tokenizer" / "chat_template.jinja").write_text("{{ messages }}")
        for name in ("w.gguf", "n.onnx"):
            (folder / name).write_bytes(b"x")
        assets = {llm.name: folder / "tokenizer" for llm in plan.llms}
        weights = {llm.name: folder / "w.gguf" for llm in plan.llms}
        weights |= {
            network.model: folder / "n.onnx" for vision in plan.visions for network in vision.networks
        }
    write_repository(plan, spec_of(*plan.models), repo, text_assets=assets, weights=weights)


@pytest.mark.parametrize("target", list(Target))
def test_our_own_repositories_are_silent(tmp_path, target):
    plan = plan_of(llm_plan(), llm_plan("second"), ocr_plan(), target=target)
    write_ours(tmp_path / "repo", tmp_path, plan)
    assert found(tmp_path / "repo") == []


@pytest.mark.parametrize("release", ["24.08", "24.12", "25.03", "25.05", "25.06", "25.10", "25.12"])
def test_older_containers_have_nothing_but_their_advisories(tmp_path, release):
    write_ours(tmp_path / "repo", tmp_path, plan_of(llm_plan(quant="fp16"), container=release))
    assert {rule for rule, _, _ in found(tmp_path / "repo")} <= {"container-cve"}


@pytest.mark.parametrize("version", VERSIONS)
def test_nvidias_templates_filled_are_silent_without_a_version(tmp_path, version):
    assert found(nvidia(tmp_path, version)) == []


@pytest.mark.parametrize(("version", "release"), CONTAINERS.items())
def test_nvidias_templates_filled_are_silent_in_their_own_container(tmp_path, version, release):
    repo = nvidia(tmp_path, version)
    assert {rule for rule, _, _ in found(repo, container=release)} <= {"container-cve"}


def test_nvidias_templates_without_streaming_may_have_many_steps(tmp_path):
    assert found(nvidia(tmp_path, "0.19.0", decoupled="False", post=5)) == []


PEOPLE = {
    "resnet": ("""# a comment with "quotes" and 'more
name: "resnet"
platform: "onnxruntime_onnx"
max_batch_size : 0
input [ { name: "data_0" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] reshape { shape: [ 1, 3, 224, 224 ] } } ]
output [ { name: "fc6_1" data_type: TYPE_FP32 dims: [ 1, 1000 ,1, 1] reshape { shape: [ 1, 1000 ] }
  label_filename: "l.txt" } ]
""", {"1/model.onnx": "x", "l.txt": "cat"}),
    "yolo": ("""platform: "tensorrt_plan"
max_batch_size: 128;
input: [ { name: 'images', data_type: TYPE_FP16, dims: [3, -1, -1] } ]
output: { name: "output0", data_type: TYPE_FP16, dims: [84, 8400] }
instance_group: [ { kind: KIND_GPU, count: 2, gpus: [ 0, 1 ] } ]
dynamic_batching { preferred_batch_size: [1, 4, 8] max_queue_delay_microseconds: 30000 }
optimization { cuda { graphs: true } }
version_policy: { latest { num_versions: 1 } }
""", {"1/model.plan": "x", "2/model.plan": "x"}),
    "speech": ("""name: "speech"
backend: "python"
max_batch_size: 512
sequence_batching { max_sequence_idle_microseconds: 5000000 oldest { max_candidate_sequences: 1024 }
 control_input [
 { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } ] } ] }
parameters [ { key: "num_mel_bins" value { string_value: "80" } }, { key: "EXECUTION_ENV_PATH",
  value: {string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz"} } ]
input [ { name: "WAV" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true optional: true } ]
output [ { name: "TRANSCRIPTS" data_type: TYPE_STRING dims: [1] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
""", {"1/model.py": "class TritonPythonModel: ...\n", "env.tar.gz": ""}),
    "dali": ("""name: "dali"
backend: "dali"
max_batch_size: 256
input [ { name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "DALI_OUTPUT_0" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
parameters: [ { key: "num_threads" value: { string_value: "12" } } ]
""", {"1/model.dali": "x"}),
    "pipeline": ("""name: "pipeline"
platform: "ensemble"
max_batch_size: 256
input [ { name: "INPUT" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
ensemble_scheduling { max_inflight_requests: 4 step [ { model_name: "dali" model_version: -1
  input_map { key: "DALI_INPUT_0" value: "INPUT" } output_map { key: "DALI_OUTPUT_0" value: "OUTPUT" } } ] }
""", {"1/.gitkeep": ""}),
    "completed": ('backend: "onnxruntime"\n', {"1/model.onnx": "x"}),
    "warm": ("""name: "warm"
backend: "pytorch"
max_batch_size: 8
input [ { name: "INPUT__0" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 4 ] } ]
model_warmup [ { name: "w" batch_size: 8
  inputs { key: "INPUT__0" value { data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } } } ]
response_cache { enable: true }
""", {"1/model.pt": "x", "warmup/readme": "x"}),
    "vllm": ("""backend: "vllm"
instance_group [ { count: 1 kind: KIND_MODEL } ]
model_transaction_policy { decoupled: True }
""",
             {"1/model.json": '{"model": "facebook/opt-125m", "gpu_memory_utilization": 0.5}'}),
}  # fmt: skip


@pytest.mark.parametrize("name", PEOPLE)
def test_configs_of_the_shape_that_people_write_are_silent(tmp_path, name):
    for model in ("dali", name) if name == "pipeline" else (name,):
        text, files = PEOPLE[model]
        write(tmp_path, model, text, files)
    assert found(tmp_path) == []


# What NVIDIA's pre-processing and post-processing of every version have in their code.
NVIDIAS_POST = """import requests
class TritonPythonModel:
    def initialize(self, args):
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir, legacy=False, trust_remote_code=True)
"""
NVIDIAS_PRE = f"""{NVIDIAS_POST}
    def load_images_from_urls(self, img_urls):
        return [Image.open(requests.get(url, stream=True).raw) for url in img_urls]
"""


@pytest.mark.parametrize("version", ["0.12.0", "0.19.0", "1.2.0"])
def test_nvidias_own_code_for_text_models_is_silent(tmp_path, version):
    """No picture model is set, and the tokenizer's folder brings no code of its own."""
    repo = nvidia(tmp_path / "repo", version, values={"tokenizer_dir": str(tmp_path / "llama")})
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "tokenizer.json").write_text("{}")
    (repo / "preprocessing" / "1" / "model.py").write_text(NVIDIAS_PRE)
    (repo / "postprocessing" / "1" / "model.py").write_text(NVIDIAS_POST)
    assert {rule for rule, _, _ in found(repo)} <= {"local-path"}
    (tmp_path / "llama" / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": "t.T"}}')
    assert [rule for rule, _, _ in found(repo) if rule != "local-path"] == ["remote-code", "remote-code"]


def test_nvidias_code_with_a_picture_model_fetches_addresses(tmp_path):
    repo = nvidia(tmp_path, "0.19.0", values={"multimodal_model_path": "/models/llava"})
    (repo / "preprocessing" / "1" / "model.py").write_text(NVIDIAS_PRE)
    assert found(repo) == [("url-fetch", "preprocessing/1/model.py", 7)]


def test_version_folders_that_wait_for_their_file(tmp_path):
    """Hidden files and a README; a backend of one's own; a folder that names its backend."""
    write(tmp_path, "net", 'backend: "onnxruntime"\n', {"1/.tmp": "", "1/README.md": "put it here"})
    write(tmp_path, "own", 'backend: "mine"\ndefault_model_filename: "weights"\n', {"1/other": ""})
    (tmp_path / "decode.dali" / "1").mkdir(parents=True)
    (tmp_path / "decode.dali" / "1" / "model.bin").write_text("")
    assert found(tmp_path) == []


def test_a_batch_may_go_into_a_models_own_first_dimension(tmp_path):
    """triton-inference-server/server qa/L0_model_config has this as a repository that loads."""
    side = '{1} [ {{ name: "{2}" data_type: TYPE_FP32 dims: [ {0} ] }} ] '
    sides = side.replace("{1}", "input").replace("{2}", "I")
    sides += side.replace("{1}", "output").replace("{2}", "O")
    write(tmp_path, "a", 'backend: "identity" max_batch_size: 4\n' + sides.format("16"))
    write(tmp_path, "b", 'backend: "identity" max_batch_size: 0\n' + sides.format("-1, 16"))
    steps = (
        'ensemble_scheduling { step [ { model_name: "a" model_version: -1 input_map { key: "I" value: "I" }'
        ' output_map { key: "O" value: "t" } }, { model_name: "b" model_version: -1'
        ' input_map { key: "I" value: "t" } output_map { key: "O" value: "O" } } ] }'
    )
    write(tmp_path, "c", 'platform: "ensemble" max_batch_size: 2\n' + sides.format("16") + steps)
    assert found(tmp_path) == []


def test_200_models_lint_clean(tmp_path):
    """40 copies of NVIDIA's five."""
    for number in range(40):
        nvidia(tmp_path / "one", "0.19.0")
        for folder in sorted((tmp_path / "one").iterdir()):
            text = (folder / "config.pbtxt").read_text()
            for model in ("ensemble", "tensorrt_llm_bls", "preprocessing", "postprocessing", "tensorrt_llm"):
                text = text.replace(f'name: "{model}"', f'name: "{model}_{number}"')
                text = text.replace(f'string_value: "{model}"', f'string_value: "{model}_{number}"')
            write(tmp_path / "repo", f"{folder.name}_{number}", text)
    assert lint(tmp_path / "repo") == []


@pytest.mark.parametrize("key", ["trt_cache_dir", "trt_engine_cache_path"])
def test_a_cache_may_lie_in_a_temporary_folder(tmp_path, key):
    write(tmp_path, "m", 'backend: "onnxruntime"\n' + parameter(key, "/tmp/gone/trt_cache"))
    assert found(tmp_path) == []
    write(tmp_path, "m", 'backend: "onnxruntime"\n' + parameter(key, "/home/me/trt_cache"))
    assert [rule for rule, _, _ in found(tmp_path)] == ["local-path"]
