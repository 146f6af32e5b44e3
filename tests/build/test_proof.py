"""The proof of a quantisation: it knows the layouts, holds what a format promises, and sees what is wrong."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tiny_checkpoints import safetensors_bytes, write_model

from trtbuild.build.proof import prove, unpack_int4
from trtbuild.errors import BuildError

HIDDEN, FFN, HEAD, GROUP = 128, 256, 32, 64
SHAPE = {"hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": 1}
SHAPES = {
    "self_attn.q_proj": (128, 128),
    "self_attn.k_proj": (64, 128),
    "self_attn.v_proj": (64, 128),
    "self_attn.o_proj": (128, 128),
    "mlp.gate_proj": (256, 128),
    "mlp.up_proj": (256, 128),
    "mlp.down_proj": (128, 256),
}
PREFIX = "model.layers.0"


def pack_int4(codes: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """[out, in] in -8…7 → [out/2, in] bytes; output 2j in the low half, 2j+1 in the high one."""
    low, high = codes[0::2].astype(np.int16) & 0xF, codes[1::2].astype(np.int16) & 0xF
    return (low | (high << 4)).astype(np.uint8).view(np.int8)


@settings(deadline=None)  # a busy machine is no fault
@given(st.lists(st.integers(-8, 7), min_size=2, max_size=64).filter(lambda v: len(v) % 2 == 0))
def test_packing_two_numbers_a_byte_is_undone(values: list[int]) -> None:
    codes = np.array(values).reshape(-1, 1)
    assert unpack_int4(pack_int4(codes)).astype(int).tolist() == codes.tolist()


def test_the_low_half_of_a_byte_is_the_even_output() -> None:
    # 0xF3: low 3, high 15 = -1
    assert unpack_int4(np.array([[0xF3]], np.uint8)).tolist() == [[3.0], [-1.0]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    tensors = {
        f"{PREFIX}.{name}.weight": rng.normal(0, 0.05, shape).astype(np.float16)
        for name, shape in SHAPES.items()
    }
    return write_model(tmp_path / "source", tensors, **SHAPE)


def originals(source: Path) -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(3)
    return {
        name: rng.normal(0, 0.05, shape).astype(np.float16).astype(np.float32)
        for name, shape in SHAPES.items()
    }


def rank_matrices(weights: dict[str, Any], rank: int, tp: int) -> dict[str, npt.NDArray[np.float32]]:
    """What rank ``rank`` of ``tp`` holds, by TensorRT-LLM's names: rows of q, k and v, columns of o and
    down.
    """

    def rows(name: str) -> Any:
        return np.split(weights[name], tp)[rank]

    return {
        "attention.qkv": np.concatenate([rows(f"self_attn.{part}_proj") for part in "qkv"]),
        "attention.dense": np.split(weights["self_attn.o_proj"], tp, axis=1)[rank],
        "mlp.fc": rows("mlp.gate_proj"),
        "mlp.gate": rows("mlp.up_proj"),
        "mlp.proj": np.split(weights["mlp.down_proj"], tp, axis=1)[rank],
    }


def quantised_int4(matrix: npt.NDArray[np.float32], prequant: npt.NDArray[np.float32]) -> dict[str, Any]:
    """AWQ by hand: scale the inputs away, round in groups of 64 to ±7 steps, pack."""
    scaled = matrix / prequant
    blocks = scaled.reshape(matrix.shape[0], -1, GROUP)
    scale = np.abs(blocks).max(axis=2) / 7
    codes = np.round(blocks / scale[..., None]).reshape(matrix.shape)
    return {
        "weight": pack_int4(codes),
        "weights_scaling_factor": scale.astype(np.float32),
        "prequant_scaling_factor": prequant.astype(np.float16),
    }


def write_awq(folder: Path, source: Path, *, tp: int = 1, spoil: Any = None) -> Path:
    weights = originals(source)
    rng = np.random.default_rng(5)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"dtype": "float16"}))
    for rank in range(tp):
        tensors: dict[str, Any] = {}
        for name, matrix in rank_matrices(weights, rank, tp).items():
            prequant = rng.uniform(0.5, 2, matrix.shape[1]).astype(np.float16).astype(np.float32)
            for part, values in quantised_int4(matrix, prequant).items():
                tensors[f"transformer.layers.0.{name}.{part}"] = values
        if spoil is not None and rank == tp - 1:
            spoil(tensors)
        (folder / f"rank{rank}.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder


@pytest.mark.parametrize("tp", [1, 2])
def test_an_awq_checkpoint_is_within_half_a_step_in_every_group(
    source: Path, tmp_path: Path, tp: int
) -> None:
    proof = prove(source, write_awq(tmp_path / "awq", source, tp=tp))
    proof.refuse_if_broken()
    summary = proof.summary()
    assert summary.layers == 5 * tp
    # q 128 + k 64 + v 64 + o 128 + gate 256 + up 256 rows of 2 groups, down 128 rows of 4
    assert summary.groups == (256 + 128 + 512) * 2 + 128 * 4
    assert 0.9 < summary.worst <= 1.0
    # a uniform error of ±s/2 has the deviation s/√12, and s is a 7th of the largest of 64 normal weights
    assert 0.05 < summary.relative_error < 0.2


@pytest.mark.parametrize("what", ["nibbles swapped", "scale of another group", "no prequant", "transposed"])
def test_a_checkpoint_that_does_not_hold_the_model_is_refused(
    source: Path, tmp_path: Path, what: str
) -> None:
    def spoil(tensors: dict[str, Any]) -> None:
        name = "transformer.layers.0.mlp.proj"
        if what == "nibbles swapped":
            raw = tensors[f"{name}.weight"].view(np.uint8)
            tensors[f"{name}.weight"] = ((raw >> 4) | (raw << 4)).view(np.int8)
        if what == "scale of another group":
            scale = tensors[f"{name}.weights_scaling_factor"]
            tensors[f"{name}.weights_scaling_factor"] = np.roll(scale, 1, axis=1)
        if what == "no prequant":
            del tensors[f"{name}.prequant_scaling_factor"]
        if what == "transposed":
            tensors[f"{name}.weight"] = np.ascontiguousarray(tensors[f"{name}.weight"][::-1])

    proof = prove(source, write_awq(tmp_path / "awq", source, spoil=spoil))
    with pytest.raises(BuildError, match=r"rank0\.transformer\.layers\.0\.mlp\.proj: a weight is off by"):
        proof.refuse_if_broken()


def test_a_missing_scale_and_a_missing_layer_are_named(source: Path, tmp_path: Path) -> None:
    def no_scale(tensors: dict[str, Any]) -> None:
        del tensors["transformer.layers.0.mlp.fc.weights_scaling_factor"]

    with pytest.raises(BuildError, match=r"mlp\.fc\.weights_scaling_factor is missing"):
        prove(source, write_awq(tmp_path / "a", source, spoil=no_scale))
    empty = tmp_path / "b"
    empty.mkdir()
    (empty / "config.json").write_text("{}")
    (empty / "rank0.safetensors").write_bytes(safetensors_bytes({"x": np.ones(2, np.float16)}))
    with pytest.raises(BuildError, match="no quantised layer"):
        prove(source, empty)


def test_int8_is_within_half_a_step_of_each_output(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sq"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"dtype": "float16"}))
    tensors: dict[str, Any] = {}
    for name, matrix in rank_matrices(originals(source), 0, 1).items():
        scale = np.abs(matrix).max(axis=1) / 127
        tensors[f"transformer.layers.0.{name}.weight"] = np.round(matrix / scale[:, None]).astype(np.int8)
        tensors[f"transformer.layers.0.{name}.weights_scaling_factor"] = scale.astype(np.float32)
    (folder / "rank0.safetensors").write_bytes(safetensors_bytes(tensors))
    summary = prove(source, folder).summary()
    assert 0.9 < summary.worst <= 1.0
    assert summary.groups == 256 + 128 + 256 + 256 + 128  # one scale a row
    assert summary.relative_error == pytest.approx(summary.naive_error, rel=0.05)  # it is plain rounding


def test_activation_weighted_error_is_that_of_the_outputs(source: Path, tmp_path: Path) -> None:
    """Held against the outputs themselves, computed one by one."""
    checkpoint = write_awq(tmp_path / "awq", source)
    inputs = np.random.default_rng(11).normal(0, 1, (HIDDEN, 40))
    inputs[7] *= 30  # a channel that stands out
    grams = {f"{PREFIX}.self_attn.o_proj": inputs @ inputs.T}
    layers = {layer.name: layer for layer in prove(source, checkpoint, grams=grams).layers}
    dense = layers["rank0.transformer.layers.0.attention.dense"]
    matrix = originals(source)["self_attn.o_proj"].astype(np.float64)
    blocks = matrix.reshape(128, 2, GROUP)
    steps = np.abs(blocks).max(axis=2, keepdims=True) / 7
    plain = (np.round(blocks / steps) * steps).reshape(128, 128)
    expected = np.sum(((plain - matrix) @ inputs) ** 2) / np.sum((matrix @ inputs) ** 2)
    assert dense.naive_weighted_error == pytest.approx(expected, rel=1e-3)
    assert layers["rank0.transformer.layers.0.mlp.fc"].weighted_error is None


def test_factors_multiplied_into_the_norm_before_a_layer_are_divided_out(
    source: Path, tmp_path: Path
) -> None:
    """modelopt's Hugging Face export keeps q's factor in input_layernorm."""
    factor = np.random.default_rng(5).uniform(0.5, 2, HIDDEN).astype(np.float32)
    norm = np.full(HIDDEN, 0.5, np.float16)
    matrix = originals(source)["self_attn.q_proj"]
    made = quantised_int4(matrix, factor)
    base = f"{PREFIX}.self_attn.q_proj"
    plain = write_model(
        tmp_path / "plain",
        {f"{base}.weight": matrix.astype(np.float16), f"{PREFIX}.input_layernorm.weight": norm},
        **SHAPE,
    )
    exported = {
        f"{base}.weight": made["weight"].view(np.uint8),
        f"{base}.weight_scale": made["weights_scaling_factor"],
        f"{PREFIX}.input_layernorm.weight": (norm * factor).astype(np.float16),
    }
    checkpoint = write_model(tmp_path / "hf", exported, **SHAPE)
    proof = prove(plain, checkpoint)
    assert [layer.name for layer in proof.layers] == [base]
    proof.refuse_if_broken()


def test_a_copied_kv_head_is_found_on_the_rank_that_holds_it(tmp_path: Path) -> None:
    """1 KV head over TP 2: both ranks hold it."""
    rng = np.random.default_rng(3)
    shapes = {"q_proj": (128, 128), "k_proj": (32, 128), "v_proj": (32, 128)}
    weights = {name: rng.normal(0, 0.05, shape).astype(np.float16) for name, shape in shapes.items()}
    config = {**SHAPE, "num_key_value_heads": 1}
    source = write_model(
        tmp_path / "s", {f"{PREFIX}.self_attn.{name}.weight": w for name, w in weights.items()}, **config
    )
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"dtype": "float16"}))
    for rank in range(2):
        parts = [np.split(weights["q_proj"], 2)[rank], weights["k_proj"], weights["v_proj"]]
        matrix = np.concatenate(parts).astype(np.float32)
        made = quantised_int4(matrix, np.ones(128, np.float32))
        tensors = {f"transformer.layers.0.attention.qkv.{part}": values for part, values in made.items()}
        (folder / f"rank{rank}.safetensors").write_bytes(safetensors_bytes(tensors))
    prove(source, folder).refuse_if_broken()


@pytest.mark.slow
def test_a_layer_is_read_in_pieces(tmp_path: Path) -> None:
    """16.8 million weights: whole, ten float32 copies of them would be 670 MB."""
    name, width = f"{PREFIX}.mlp.down_proj", 4096
    matrix = np.random.default_rng(1).normal(0, 0.05, (width, width)).astype(np.float16)
    scale = (np.abs(matrix).max(axis=1) / 127).astype(np.float32)
    codes = np.round(matrix / scale[:, None]).astype(np.int8)
    source = write_model(tmp_path / "s", {f"{name}.weight": matrix}, **SHAPE)
    checkpoint = write_model(
        tmp_path / "c", {f"{name}.weight": codes, f"{name}.weight_scale": scale}, **SHAPE
    )
    del matrix, codes
    tracemalloc.start()
    prove(source, checkpoint).refuse_if_broken()
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 300e6
