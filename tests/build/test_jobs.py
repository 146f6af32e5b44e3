"""What is decided about a model's build before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.plans import llm_plan
from tests.support.tiny_checkpoints import awq_tensors, safetensors_bytes, write_model

from trtbuild.build.commands import Step
from trtbuild.build.jobs import JobOptions, lora_rank, plan_job
from trtbuild.errors import BuildError, ModelSourceError
from trtbuild.spec import Target

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_published_awq_sibling_saves_the_calibration_and_is_said() -> None:
    job = plan_job(llm_plan(), target=Target.ENGINE, version="1.2.1", options=JobOptions(revision=COMMIT))
    assert [command.step for command in job.commands] == [Step.FETCH, Step.CONVERT, Step.COMPILE]
    assert job.llm.source == "Qwen/Qwen2.5-7B-Instruct-AWQ"
    assert "taking Qwen/Qwen2.5-7B-Instruct-AWQ (awq int4 g128)" in job.notes[0]
    assert job.calibration is None


def test_calibrate_makes_our_own_from_the_sixteen_bit_weights() -> None:
    options = JobOptions(revision=COMMIT, calibrate=True)
    job = plan_job(llm_plan(), target=Target.ENGINE, version="1.2.1", options=options)
    assert [command.step for command in job.commands] == [Step.FETCH, Step.QUANTISE, Step.COMPILE]
    assert job.llm.source == "Qwen/Qwen2.5-7B-Instruct"
    assert job.recipe.calibration_samples == 32
    assert job.recipe.group_size == 128


def test_a_model_whose_width_needs_groups_of_64_gets_them() -> None:
    smol = llm_plan("smol", source="HuggingFaceTB/SmolLM2-135M-Instruct")
    job = plan_job(smol, target=Target.ENGINE, version="1.2.1", options=JobOptions(revision=COMMIT))
    assert job.recipe.group_size == 64
    assert "64" in job.commands[1].argv[job.commands[1].argv.index("--awq_block_size") + 1]


def test_a_folder_at_hand_is_read_and_nothing_is_fetched(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "own", awq_tensors(), quantization_config=AWQ)
    job = plan_job(llm_plan(weights_path=str(folder)), target=Target.ENGINE, version="1.2.1")
    assert [command.step for command in job.commands] == [Step.CONVERT, Step.COMPILE]
    assert job.folder == folder
    assert job.recipe.source_quant == "W4A16_GPTQ"


def test_the_llm_api_quantises_with_our_own_tool_and_compiles_nothing() -> None:
    options = JobOptions(revision=COMMIT, calibrate=True)
    job = plan_job(llm_plan(), target=Target.LLMAPI, version="1.2.1", options=options)
    assert [command.step for command in job.commands] == [Step.FETCH, Step.QUANTISE]
    assert not job.commands[1].needs_gpu


def test_a_model_that_nothing_is_known_of_must_be_fetched_first() -> None:
    with pytest.raises(BuildError, match="in no catalogue") as raised:
        plan_job(llm_plan(source="someone/something"), target=Target.ENGINE, version="1.2.1")
    assert "--weights" in raised.value.remedies[0]


def adapter(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 16, **config}))
    content = safetensors_bytes({"base.lora_A.weight": np.zeros((16, 4), np.float16)})
    (folder / "adapter_model.safetensors").write_bytes(content)
    return folder


def test_loras_become_steps_and_unsafe_or_other_adapters_are_refused(tmp_path: Path) -> None:
    options = JobOptions(revision=COMMIT, loras={"french": adapter(tmp_path / "a")})
    job = plan_job(llm_plan(), target=Target.ENGINE, version="1.2.1", options=options)
    assert Step.LORA in [command.step for command in job.commands]
    assert job.recipe.loras == (("french", 16),)
    pickled = adapter(tmp_path / "b")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    with pytest.raises(ModelSourceError, match="pickled adapters stay closed"):
        lora_rank(pickled)
    with pytest.raises(ModelSourceError, match="an adapter of type IA3"):
        lora_rank(adapter(tmp_path / "c", peft_type="IA3"))
    with pytest.raises(ModelSourceError, match=r"adapter_config\.json cannot be read"):
        lora_rank(adapter(tmp_path / "d", r=None))
    bad = JobOptions(revision=COMMIT, loras={"../up": tmp_path / "a"})
    with pytest.raises(ValueError, match="cannot be a model name"):
        plan_job(llm_plan(), target=Target.ENGINE, version="1.2.1", options=bad)
