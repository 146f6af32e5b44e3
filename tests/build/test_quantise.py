"""Quantising for real, on tiny random models: modelopt on the CPU, exported, proved. Needs the extra
`build`.
"""

from __future__ import annotations

import gc
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trtbuild.build import quantise
from trtbuild.build.calibration import load_calibration
from trtbuild.build.checkpoints import read_checkpoint
from trtbuild.build.commands import Command, Recipe, Step, llm_commands
from trtbuild.build.products import check_product
from trtbuild.build.proof import prove
from trtbuild.build.tensors import read_header, read_headers, read_tensor
from trtbuild.spec import Target

pytestmark = pytest.mark.slow
needs_modelopt = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("modelopt") is None,
    reason="torch and modelopt are not installed (extra `build`)",
)

# Rotary bases that differ from the default of 10,000, so that a lost one is seen.
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"rope_theta": 500000.0},
    "qwen2": {"rope_theta": 1000000.0},
}
# Root mean square error over that of the weights. FP8: at most 2⁻⁴ of each weight, evenly spread: 2⁻⁴/√3 =
# 3.6 %. INT4 in groups: a step is the largest of 128 normal weights (about 2.8 σ) over 7, its error s/√12:
# 11.6 %, and AWQ's factors may cost half as much again. INT8: s = 2.8 σ/127, 0.64 %; SmoothQuant's factors of
# up to 4 widen it. Random weights have no salient channels, so no calibration beats rounding here:
# scripts/prove-awq shows that.
LARGEST_ERROR = {"fp8": 0.036, "int4_awq": 0.175, "int8_sq": 0.026}
ROTARY_BASE = {"llama": 500000.0, "qwen2": 1000000.0}


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration")
    load_calibration(None, quant="awq", samples=4).write(folder)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random models of two layers, hidden 256, with a byte-level tokenizer."""
    import torch
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
        Qwen2Config,
        Qwen2ForCausalLM,
    )

    torch.set_num_threads(1)
    classes = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}
    vocabulary = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found = {}
    for name, (config_class, model_class) in classes.items():
        torch.manual_seed(1)
        config = config_class(
            vocab_size=320,
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            tie_word_embeddings=False,
            **MODELS[name],
        )
        folder = tmp_path_factory.mktemp(name)
        model_class(config).half().save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
        found[name] = folder
    return found


def command(qformat: str, tp: int, *, target: Target = Target.ENGINE, kv_dtype: str = "auto") -> Command:
    """The command that a build would run; its facts are what the product must hold."""
    from tests.support.plans import llm_plan

    quant = {"int4_awq": "awq", "fp8": "fp8", "int8_sq": "int8-sq"}[qformat]
    recipe = Recipe("quantise", quant, 128, calibration_samples=4, calibration_tokens=48, quantiser="cpu")
    llm = llm_plan(quant=quant, tp=tp, kv_dtype=kv_dtype, weights_bytes=400_000 // tp)
    made = llm_commands(llm, target=target, version="1.2.1", model_type="llama", recipe=recipe)
    return next(command for command in made if command.step is Step.QUANTISE)


def run(made: Command, *, source: Path, calibration: Path, output: Path) -> Path:
    """Runs a command in this process: torch is imported once for all tests."""
    places = {"source": source, "calibration": calibration, "checkpoint.partial": output}
    words = [str(places.get(word, word)) for word in made.argv[3:]]
    assert quantise.main(words) == 0
    gc.collect()
    check_product(output, made)
    return output


@needs_modelopt
@pytest.mark.filterwarnings("ignore")  # torch's and modelopt's own
@pytest.mark.parametrize(
    ("name", "qformat", "tp", "kv_dtype"),
    [
        ("llama", "int4_awq", 1, "auto"),
        ("qwen2", "int4_awq", 2, "auto"),
        ("llama", "fp8", 2, "fp8"),
        ("qwen2", "fp8", 1, "auto"),
        ("llama", "int8_sq", 1, "int8"),
        ("qwen2", "int8_sq", 2, "auto"),
    ],
)
def test_a_tensorrt_llm_checkpoint_holds_the_model_within_what_its_format_promises(
    models: dict[str, Path],
    calibration: Path,
    tmp_path: Path,
    name: str,
    qformat: str,
    tp: int,
    kv_dtype: str,
) -> None:
    made = command(qformat, tp, kv_dtype=kv_dtype)
    output = run(made, source=models[name], calibration=calibration, output=tmp_path / "checkpoint")
    config = json.loads((output / "config.json").read_text())
    assert config["rotary_base"] == ROTARY_BASE[name]
    assert config["attn_bias"] is (name == "qwen2")
    assert config["mapping"]["world_size"] == tp
    proof = prove(models[name], output)
    assert len(proof.layers) == 2 * 5 * tp  # qkv, dense, fc, gate, proj of two layers on each rank
    assert 0.9 < proof.summary().worst <= 1.01
    assert proof.summary().relative_error < LARGEST_ERROR[qformat]
    found = read_checkpoint(output)
    assert (found.kind, found.tp) == ("trtllm", tp)
    assert (found.kv_scales > 0) is (kv_dtype != "auto")


@needs_modelopt
@pytest.mark.filterwarnings("ignore")
def test_awq_is_packed_as_tensorrt_llm_reads_it(
    models: dict[str, Path], calibration: Path, tmp_path: Path
) -> None:
    """Names, shapes and types: reference trtllm.md 5.1 to 5.3 and local_runtime.md."""
    made = command("int4_awq", 2)
    output = run(made, source=models["qwen2"], calibration=calibration, output=tmp_path / "checkpoint")
    config = json.loads((output / "config.json").read_text())
    assert config["quantization"] == {
        "quant_algo": "W4A16_AWQ",
        "kv_cache_quant_algo": None,
        "group_size": 128,
        "has_zero_point": False,
        "pre_quant_scale": True,
        "exclude_modules": ["lm_head"],
    }
    rank = read_header(output / "rank1.safetensors")
    base = "transformer.layers.0.attention.qkv"
    # rank 1 of 2: 2 of 4 query heads and 1 of 2 KV heads of 64 = 128 + 64 + 64 outputs of 256 inputs
    assert (rank[f"{base}.weight"].dtype, rank[f"{base}.weight"].shape) == ("I8", (128, 256))
    assert rank[f"{base}.weights_scaling_factor"].shape == (256, 2)
    assert rank[f"{base}.prequant_scaling_factor"].shape == (256,)
    assert rank[f"{base}.bias"].shape == (256,)
    assert rank["transformer.layers.0.mlp.proj.weight"].shape == (128, 256)  # 512 inputs, 256 on this rank
    assert rank["lm_head.weight"].dtype == "F16"


@needs_modelopt
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "qformat"), [("qwen2", "int4_awq"), ("llama", "fp8")])
def test_a_hugging_face_checkpoint_can_be_read_by_an_older_transformers_too(
    models: dict[str, Path], calibration: Path, tmp_path: Path, name: str, qformat: str
) -> None:
    made = command(qformat, 1, target=Target.LLMAPI)
    output = run(made, source=models[name], calibration=calibration, output=tmp_path / "checkpoint")
    config = json.loads((output / "config.json").read_text())
    assert config["rope_theta"] == ROTARY_BASE[name]
    assert (output / "tokenizer.json").is_file()
    prove(models[name], output).refuse_if_broken()
    found = read_checkpoint(output)
    assert found.quant is not None
    assert found.quant.method == "modelopt"


@needs_modelopt
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_quantised_is_left_as_it_was(
    models: dict[str, Path], calibration: Path, tmp_path: Path
) -> None:
    made = command("fp8", 1)
    output = run(made, source=models["llama"], calibration=calibration, output=tmp_path / "checkpoint")
    source, exported = read_headers(models["llama"]), read_header(output / "rank0.safetensors")
    pairs = {
        "model.embed_tokens.weight": "transformer.vocab_embedding.weight",
        "lm_head.weight": "lm_head.weight",
        "model.norm.weight": "transformer.ln_f.weight",
        "model.layers.1.post_attention_layernorm.weight": "transformer.layers.1.post_layernorm.weight",
    }
    for before, after in pairs.items():
        assert np.array_equal(read_tensor(source[before]), read_tensor(exported[after]))


def arguments(tmp_path: Path, source: Path) -> list[str]:
    return [
        *("--model_dir", str(source), "--output_dir", str(tmp_path / "out")),
        *("--calib_dataset", str(tmp_path / "calibration"), "--qformat", "int4_awq"),
    ]


def test_what_cannot_be_quantised_is_refused_before_torch_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.support.tiny_checkpoints import write_model

    gemma = write_model(tmp_path / "gemma", model_type="gemma2")
    assert quantise.main(arguments(tmp_path, gemma)) == 1
    assert "model_type 'gemma2' cannot be exported without tensorrt_llm" in capsys.readouterr().err
    awq = write_model(tmp_path / "awq", quantization_config={"quant_method": "awq"})
    assert quantise.main(arguments(tmp_path, awq)) == 1
    assert "awq cannot be quantised; give 16-bit safetensors" in capsys.readouterr().err
    plain = write_model(tmp_path / "plain")
    assert quantise.main(arguments(tmp_path, plain)) == 1
    assert "no train.jsonl with calibration text" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
