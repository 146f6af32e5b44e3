"""What is put right in the configuration of an exported checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.tiny_checkpoints import CONFIG

from trtbuild.build.export_config import fix_hf_export, fix_trtllm_config, rotary_fields

LLAMA3 = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("config", "theta", "scaling"),
    [
        ({}, 10000.0, None),
        ({"rope_theta": 1000000.0, "rope_scaling": None}, 1e6, None),
        ({"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}}, 5e5, None),
        (
            {"rope_theta": 500000.0, "rope_scaling": {**LLAMA3, "rope_type": "llama3"}},
            5e5,
            {**LLAMA3, "rope_type": "llama3", "type": "llama3"},
        ),
        (
            {"rope_parameters": {**LLAMA3, "rope_theta": 500000.0, "rope_type": "llama3"}},
            5e5,
            {**LLAMA3, "rope_type": "llama3", "type": "llama3"},
        ),
        (
            {"rope_theta": 10000, "rope_scaling": {"type": "linear", "factor": 2.0}},
            1e4,
            {"type": "linear", "rope_type": "linear", "factor": 2.0},
        ),
    ],
)
def test_rotary_fields_are_read_from_both_generations_of_transformers(
    config: dict[str, Any], theta: float, scaling: Any
) -> None:
    assert rotary_fields(config) == {"rope_theta": theta, "rope_scaling": scaling}


def trtllm_config(folder: Path, source: dict[str, Any]) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architecture": "X", "norm_epsilon": 1e-5}))
    fix_trtllm_config(folder, source_config={**CONFIG, **source})
    content: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return content


def test_a_qwen2_checkpoint_has_its_rotary_base_biases_and_type(tmp_path: Path) -> None:
    config = trtllm_config(tmp_path, {})
    assert (config["rotary_base"], config["rotary_scaling"]) == (1e6, None)
    assert (config["attn_bias"], config["qwen_type"], config["norm_epsilon"]) == (True, "qwen2", 1e-6)
    assert "qk_layernorm" not in config


def test_qwen3_has_norms_and_no_biases_and_llama_what_it_says(tmp_path: Path) -> None:
    qwen3 = trtllm_config(tmp_path / "q", {"model_type": "qwen3", "attention_bias": False})
    assert (qwen3["attn_bias"], qwen3["qk_layernorm"], qwen3["qwen_type"]) == (False, True, "qwen3")
    llama = trtllm_config(tmp_path / "l", {"model_type": "llama", "attention_bias": True, "mlp_bias": True})
    assert (llama["attn_bias"], llama["mlp_bias"]) == (True, True)
    assert "qwen_type" not in llama


def test_a_hugging_face_export_gets_the_sources_configuration_and_tokenizer_back(tmp_path: Path) -> None:
    source, exported = tmp_path / "source", tmp_path / "exported"
    source.mkdir()
    exported.mkdir()
    (source / "tokenizer.json").write_text("{}")
    (source / "model.py").write_text("never copied")
    new_words = {"model_type": "qwen2", "dtype": "float16", "quantization_config": {"quant_algo": "FP8"}}
    (exported / "config.json").write_text(json.dumps(new_words))
    old = {key: value for key, value in CONFIG.items() if key != "rope_theta"}
    fix_hf_export(
        exported,
        source=source,
        source_config={**old, "rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}},
    )
    config = json.loads((exported / "config.json").read_text())
    assert config["quantization_config"] == {"quant_algo": "FP8"}
    assert config["torch_dtype"] == "float16"
    assert config["rope_theta"] == 7.0  # for a transformers that does not know rope_parameters
    assert sorted(path.name for path in exported.iterdir()) == ["config.json", "tokenizer.json"]
