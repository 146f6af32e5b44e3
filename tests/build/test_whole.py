"""A folder's tensors against its config.json: whole models pass, what is missing is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.tiny_checkpoints import CONFIG, awq_tensors, model_tensors, safetensors_bytes, write_model

from trtbuild.build.checkpoints import read_checkpoint
from trtbuild.build.tensors import read_header
from trtbuild.errors import ModelSourceError

Tensors = dict[str, npt.NDArray[Any]]
Edit = Callable[[Tensors], Any]


def without(*parts: str) -> Edit:
    """Leaves out the tensors whose names contain one of the parts."""

    def edit(tensors: Tensors) -> None:
        for name in [name for name in tensors if any(part in name for part in parts)]:
            del tensors[name]

    return edit


def with_tensor(name: str, shape: tuple[int, ...]) -> Edit:
    return lambda tensors: tensors.update({name: np.zeros(shape, np.float16)})


def edited(folder: Path, edit: Edit | None = None, **config: Any) -> Path:
    """A whole model of the configuration, edited."""
    write_model(folder, **config)
    tensors = model_tensors({**CONFIG, **config})
    if edit is not None:
        edit(tensors)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder


LAYER = "model.layers.1"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (without(LAYER), "layer 1 is missing"),
        (without(f"{LAYER}.mlp"), "layer 1 has no mlp.down_proj, mlp.gate_proj, mlp.up_proj"),
        (without("k_proj"), "layer 0 has no self_attn.k_proj"),
        (without("lm_head"), "lm_head has weights of its own"),
        (without("layers"), "its 3 tensors are no layers of a model"),
        (with_tensor("model.layers.2.mlp.up_proj.weight", (512, 256)), "the files hold layer 2"),
        (with_tensor(f"{LAYER}.self_attn.q_proj.weight", (256, 512)), "is 256 × 512 (outputs × inputs)"),
        (with_tensor(f"{LAYER}.mlp.down_proj.weight", (512, 256)), "by config.json it is 256 × 512"),
        (with_tensor("model.embed_tokens.weight", (300, 256)), "by config.json it is 320 × 256"),
        (with_tensor(f"{LAYER}.self_attn.q_proj.lora_A.weight", (8, 256)), "a LoRA adapter and no model"),
        (with_tensor(f"{LAYER}.self_attn.q_proj.qweight", (256, 32)), "no quantization_config"),
    ],
)
def test_what_is_missing_or_of_another_size_is_named(tmp_path: Path, edit: Edit, words: str) -> None:
    with pytest.raises(ModelSourceError) as raised:
        read_checkpoint(edited(tmp_path / "m", edit))
    assert words in raised.value.message
    assert raised.value.remedies


def other_names(tensors: Tensors) -> None:
    """As GPT-J calls them: nothing is known of such names but that layers are alike."""
    for name in list(tensors):
        tensors[name.replace("model.layers", "transformer.h").replace("self_attn", "attn")] = tensors.pop(
            name
        )


@pytest.mark.parametrize(
    ("edit", "config"),
    [
        (None, {}),
        (without("lm_head"), {"tie_word_embeddings": True}),
        (with_tensor("model.embed_tokens.weight", (384, 256)), {}),  # rows of padding
        (with_tensor("visual.blocks.7.attn.qkv.weight", (9, 3)), {}),  # a tower beside the layers
        (with_tensor("model.layers.2.eh_proj.weight", (256, 512)), {"num_nextn_predict_layers": 1}),
        (with_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", (32,)), {}),
        (other_names, {"model_type": "gptj"}),
    ],
)
def test_whole_models_pass(tmp_path: Path, edit: Edit | None, config: dict[str, Any]) -> None:
    assert read_checkpoint(edited(tmp_path / "m", edit, **config)).format == "fp16"


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model.", ""])
def test_layers_are_found_wherever_a_model_keeps_them(tmp_path: Path, prefix: str) -> None:
    def moved(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.startswith("model.")]:
            tensors[prefix + name.removeprefix("model.")] = tensors.pop(name)

    folder = edited(tmp_path / "m", moved)
    assert read_checkpoint(folder).format == "fp16"
    edited(folder, lambda tensors: (moved(tensors), without("layers.1.mlp.up_proj")(tensors)))
    with pytest.raises(ModelSourceError, match=r"layer 1 has no mlp\.up_proj"):
        read_checkpoint(folder)


def test_experts_and_leading_dense_layers_are_no_holes(tmp_path: Path) -> None:
    def experts(tensors: Tensors) -> None:
        without(f"{LAYER}.mlp")(tensors)
        for expert in range(4):
            for part in ("gate_proj", "up_proj", "down_proj"):
                tensors[f"{LAYER}.mlp.experts.{expert}.{part}.weight"] = np.zeros((8, 8), np.float16)

    config = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "mlp_only_layers": [0]}
    folder = edited(tmp_path / "m", experts, model_type="qwen3_moe", **config)
    assert read_checkpoint(folder).model_type == "qwen3_moe"


@pytest.mark.parametrize(
    ("method", "tensors", "words"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, {}, "no tensor is called *.qweight"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, {}, "no tensor is called *.qweight"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {}, "called *weight_scale_inv"),
        ({"quant_method": "mxfp4"}, {}, "no tensor is called *_blocks"),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            {
                f"{LAYER}.self_attn.q_proj.weight": "F8_E4M3",
                "model.layers.0.mlp.up_proj.weight_scale_inv": "F32",
            },
            f"{LAYER}.self_attn.q_proj.weight is in 8 bits (F8_E4M3) and has no scale",
        ),
    ],
)
def test_a_quantisation_that_the_tensors_do_not_have_is_refused(
    tmp_path: Path, method: dict[str, Any], tensors: dict[str, str], words: str
) -> None:
    values: Tensors = {
        name: np.zeros((256, 256), np.uint8) if code == "F8_E4M3" else np.zeros((2, 2), np.float32)
        for name, code in tensors.items()
    }
    folder = write_model(tmp_path / "m", values, codes=tensors, quantization_config=method)
    with pytest.raises(ModelSourceError) as raised:
        read_checkpoint(folder)
    assert words in raised.value.message


def test_a_list_in_place_of_a_quantisation_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", awq_tensors(), quantization_config=[{"quant_method": "awq"}])
    with pytest.raises(ModelSourceError, match="quantization_config is a list"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("places", "extra", "words"),
    [
        ([(0, 8), (4, 12)], 0, "b begins at byte"),  # overlap
        ([(0, 8), (12, 20)], 0, "b begins at byte"),  # a hole
        ([(0, 8), (8, 12)], 0, "b has 4 bytes for F16 of [4]"),
        ([(0, 8), (8, 16)], 3, "3 bytes after its last tensor"),
    ],
)
def test_tensors_fill_a_file_without_holes_or_overlaps(
    tmp_path: Path, places: list[tuple[int, int]], extra: int, words: str
) -> None:
    header = {
        name: {"dtype": "F16", "shape": [4], "data_offsets": list(place)}
        for name, place in zip("ab", places, strict=True)
    }
    text = json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(places[-1][1] + extra))
    with pytest.raises(ModelSourceError) as raised:
        read_header(path)
    assert words in raised.value.message
