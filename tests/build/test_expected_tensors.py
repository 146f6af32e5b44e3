"""Weights against config.json, the files of a model, and what is refused before a plan is made of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.tiny_checkpoints import CONFIG, safetensors_bytes, write_model

from trtbuild.build.checkpoints import read_checkpoint
from trtbuild.build.commands import _FETCH, FETCHED_PATTERNS
from trtbuild.build.weights import inspect_weights
from trtbuild.errors import ModelSourceError
from trtbuild.plan.architecture import from_hf_config
from trtbuild.plan.quant_configs import refuse_unreadable

HIDDEN, FFN, VOCAB, KEYS = 256, 512, 320, 128  # of CONFIG: 4 heads of 64, 2 KV heads


def whole(prefix: str = "model.", head: str | None = "lm_head") -> dict[str, npt.NDArray[Any]]:
    """All tensors of CONFIG's model, by Hugging Face's names."""
    layer = {
        "self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (KEYS, HIDDEN),
        "self_attn.v_proj": (KEYS, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
        "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN), "mlp.down_proj": (HIDDEN, FFN),
        "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,),
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}embed_tokens": (VOCAB, HIDDEN),
        f"{prefix}norm": (HIDDEN,),
    }
    for index in range(2):
        shapes |= {f"{prefix}layers.{index}.{name}": shape for name, shape in layer.items()}
    if head is not None:
        shapes[head] = (VOCAB, HIDDEN)
    return {f"{name}.weight": np.zeros(shape, np.float16) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("changes", "config"),
    [
        ({}, {}),
        ({"lm_head.weight": None}, {"tie_word_embeddings": True}),
        ({"lm_head.weight": None}, {"tie_word_embeddings": None}),  # the class has a default
        ({"model.layers.0.mlp.gate_proj.weight": None, "model.layers.0.mlp.up_proj.weight": None,
          "model.layers.1.mlp.gate_proj.weight": None, "model.layers.1.mlp.up_proj.weight": None,
          "model.layers.0.mlp.gate_up_proj.weight": (2 * FFN, HIDDEN)}, {}),  # fused: not understood
        ({"model.layers.1.mlp.up_proj.weight": (100, 100)}, {"model_type": "some_new_kind"}),
    ],
)  # fmt: skip
def test_whole_tied_fused_and_unknown_models_are_left_alone(
    tmp_path: Path, changes: dict[str, Any], config: dict[str, Any]
) -> None:
    tensors = whole()
    for name, shape in changes.items():
        tensors.pop(name, None)
        if shape is not None:
            tensors[name] = np.zeros(shape, np.float16)
    read_checkpoint(write_model(tmp_path / "m", tensors, **config))


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model.", ""])
@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("layers.1.mlp.up_proj", None, r"layers\.1\.mlp\.up_proj\.weight is missing"),
        ("layers.1.mlp.up_proj", (100, HIDDEN), "is 100 x 256 instead of 512 x 256"),
        ("layers.0.self_attn.k_proj", (HIDDEN, HIDDEN), "is 256 x 256 instead of 128 x 256"),
        ("norm", None, r"norm\.weight is missing"),
        ("embed_tokens", (VOCAB - 1, HIDDEN), "is 319 x 256 instead of 320 x 256"),
    ],
)
def test_a_tensor_that_is_missing_or_of_another_shape_is_named(
    tmp_path: Path, prefix: str, name: str, shape: tuple[int, ...] | None, said: str
) -> None:
    tensors = whole(prefix)
    del tensors[f"{prefix}{name}.weight"]
    if shape is not None:
        tensors[f"{prefix}{name}.weight"] = np.zeros(shape, np.float16)
    with pytest.raises(ModelSourceError, match=said):
        read_checkpoint(write_model(tmp_path / "m", tensors))


def test_packed_layers_need_to_be_there_in_whatever_shape(tmp_path: Path) -> None:
    section = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
    tensors = whole()
    for name in [name for name in tensors if "_proj." in name]:
        outputs, inputs = tensors.pop(name).shape
        module = name.removesuffix(".weight")
        tensors[f"{module}.qweight"] = np.zeros((inputs, outputs // 8), np.int32)
        tensors[f"{module}.scales"] = np.ones((inputs // 128, outputs), np.float16)
    read_checkpoint(write_model(tmp_path / "whole", tensors, quantization_config=section))
    del tensors["model.layers.0.mlp.down_proj.qweight"]
    with pytest.raises(ModelSourceError, match="down_proj"):
        read_checkpoint(write_model(tmp_path / "less", tensors, quantization_config=section))


def test_weights_that_lie_in_a_folder_twice_count_once(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", whole())
    alone = inspect_weights(folder).size_bytes
    again = safetensors_bytes({"layers.0.attention.wq.weight": np.zeros((HIDDEN, HIDDEN), np.float16)})
    (folder / "consolidated.safetensors").write_bytes(again)
    assert inspect_weights(folder).size_bytes == alone
    assert read_checkpoint(folder).size_bytes == alone


_HUB = """
import fnmatch, json, os, shutil
HUB = os.environ["FAKE_HUB"]
def list_repo_files(repo, revision):
    return sorted(os.listdir(HUB))
def snapshot_download(repo, revision, local_dir, allow_patterns):
    os.makedirs(local_dir, exist_ok=True)
    for name in os.listdir(HUB):
        if any(fnmatch.fnmatch(name, pattern) for pattern in allow_patterns):
            shutil.copy(os.path.join(HUB, name), local_dir)
"""


@pytest.mark.parametrize(
    ("hub", "index", "taken", "left"),
    [
        (["model-1.safetensors", "model-2.safetensors", "consolidated.safetensors"],
         ["model-1.safetensors", "model-2.safetensors"],
         {"model-1.safetensors", "model-2.safetensors"}, "consolidated.safetensors"),
        (["model.safetensors", "consolidated-00001.safetensors"], None,
         {"model.safetensors"}, "consolidated-00001.safetensors"),
        (["pytorch_model.safetensors"], None, {"pytorch_model.safetensors"}, ""),
        (["weights-a.safetensors", "model.safetensors"], ["weights-a.safetensors"],
         {"weights-a.safetensors"}, "model.safetensors"),
    ],
)  # fmt: skip
def test_a_fetch_takes_the_files_of_the_model_and_names_what_it_leaves(
    tmp_path: Path, hub: list[str], index: list[str] | None, taken: set[str], left: str
) -> None:
    there = tmp_path / "hub"
    there.mkdir()
    for name in [*hub, "config.json", "pytorch_model.bin"]:
        (there / name).write_text("{}")
    if index is not None:
        text = json.dumps({"weight_map": {str(number): name for number, name in enumerate(index)}})
        (there / "model.safetensors.index.json").write_text(text)
    (tmp_path / "huggingface_hub.py").write_text(_HUB)
    done = subprocess.run(
        [sys.executable, "-c", _FETCH, "a/b", "main", str(tmp_path / "got"), *FETCHED_PATTERNS],
        env={"PYTHONPATH": str(tmp_path), "FAKE_HUB": str(there)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    got = {path.name for path in (tmp_path / "got").iterdir()}
    assert {name for name in got if name.endswith(".safetensors")} == taken
    assert "config.json" in got
    assert "pytorch_model.bin" not in got
    assert (left in done.stdout) if left else not done.stdout


@pytest.mark.parametrize(
    "section",
    [
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True},
        {"quant_method": "gptq", "bits": 8, "group_size": 128},
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quant_method": "fbgemm_fp8"},
        {"quant_method": "hqq"},
    ],
)
def test_what_no_target_reads_is_refused_instead_of_being_planned_as_16_bit(
    tmp_path: Path, section: dict[str, Any]
) -> None:
    with pytest.raises(ModelSourceError) as caught:
        refuse_unreadable(tmp_path, {**CONFIG, "quantization_config": section})
    assert any("--quant awq" in remedy for remedy in caught.value.remedies)


@pytest.mark.parametrize(
    "absurd",
    [
        {"hidden_size": 10**12},
        {"num_hidden_layers": 10**6},
        {"vocab_size": 10**10},
        {"max_position_embeddings": 10**11},
        {"intermediate_size": 10**9},
        # each of them thinkable, all of them together not: 4096 layers of 262,144 x 4 M
        {"num_hidden_layers": 4096, "hidden_size": 262_144, "intermediate_size": 4_194_304},
    ],
)
def test_sizes_beyond_any_model_are_refused(absurd: dict[str, int]) -> None:
    with pytest.raises(ModelSourceError, match="no model has more"):
        from_hf_config({**CONFIG, **absurd})
