"""Model folders: what is recognised, what is refused, and what each is answered with."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.tiny_checkpoints import (
    awq_tensors,
    gptq_tensors,
    model_tensors,
    safetensors_bytes,
    write_model,
)

from trtbuild.build.checkpoints import expected_checkpoint, read_checkpoint
from trtbuild.build.tensors import read_header, read_headers, read_tensor
from trtbuild.build.weights import inspect_weights
from trtbuild.errors import ModelSourceError

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}


def weights_scheme(**weights: Any) -> dict[str, Any]:
    """A compressed-tensors configuration with one scheme."""
    inputs = weights.pop("inputs", None)
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "format": "any", "config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("config", "method", "name", "bits", "group"),
    [
        (AWQ, "awq", "awq", 4, 128),
        (GPTQ, "gptq", "gptq", 4, 128),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", "fp8-block", 8, None),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8", "fp8", 8, None),
        ({"quant_method": "fbgemm_fp8"}, "fbgemm_fp8", "fp8-rowwise", 8, None),
        ({"quant_method": "mxfp4"}, "mxfp4", "mxfp4", 4, 32),
        (
            weights_scheme(num_bits=8, type="float", strategy="tensor", inputs={"num_bits": 8}),
            "compressed-tensors", "fp8", 8, None,
        ),
        (
            weights_scheme(num_bits=8, type="float", strategy="channel", inputs={"num_bits": 8}),
            "compressed-tensors", "fp8-rowwise", 8, None,
        ),
        (
            weights_scheme(num_bits=4, type="int", strategy="group", group_size=64),
            "compressed-tensors", "awq", 4, 64,
        ),
    ],
)  # fmt: skip
def test_every_makers_configuration_is_recognised(
    tmp_path: Path, config: dict[str, Any], method: str, name: str, bits: int, group: int | None
) -> None:
    quant = expected_checkpoint(write_model(tmp_path / "m", quantization_config=config)).quant
    assert quant is not None
    assert (quant.method, quant.format, quant.bits, quant.group_size) == (method, name, bits, group)


def test_modelopts_own_file_is_read(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    section = {"quant_algo": "W4A16_AWQ", "group_size": 64, "kv_cache_quant_algo": "FP8"}
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": section}))
    quant = expected_checkpoint(folder).quant
    assert quant is not None
    assert (quant.method, quant.format, quant.group_size, quant.kv_algo) == ("modelopt", "awq", 64, "FP8")


def test_modelopts_own_file_goes_before_config_json(tmp_path: Path) -> None:
    inline = {"quant_method": "modelopt", "quant_algo": "FP8"}
    folder = write_model(tmp_path / "m", quantization_config=inline)
    with pytest.raises(ModelSourceError, match=r"fp8 by modelopt, and hf_quant_config\.json is missing"):
        expected_checkpoint(folder)
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    assert expected_checkpoint(folder).format == "nvfp4"


@pytest.mark.parametrize("algo", [None, "NO_QUANT"])
def test_modelopts_file_may_speak_of_the_kv_cache_alone(tmp_path: Path, algo: str | None) -> None:
    folder = write_model(tmp_path / "m", torch_dtype="bfloat16")
    section = {"quant_algo": algo, "kv_cache_quant_algo": "FP8"}
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": section}))
    assert read_checkpoint(folder).format == inspect_weights(folder).format == "bf16"


@pytest.mark.parametrize("content", [{}, {"quantization": [1]}, {"quantization": "FP8"}])
def test_a_damaged_file_of_modelopt_is_told(tmp_path: Path, content: object) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "hf_quant_config.json").write_text(json.dumps(content))
    with pytest.raises(ModelSourceError, match=r"`quantization` is .*, not an object"):
        expected_checkpoint(folder)


@pytest.mark.parametrize("classes", [1.5, {"a": 1}, "LlamaForCausalLM"])
def test_architectures_of_another_kind_are_refused(tmp_path: Path, classes: object) -> None:
    folder = write_model(tmp_path / "m", architectures=classes)
    for read in (read_checkpoint, expected_checkpoint):
        with pytest.raises(ModelSourceError, match="a list of class names is needed"):
            read(folder)


def test_gptqs_own_file_is_read_where_config_json_says_nothing(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", gptq_tensors(group=64))
    (folder / "quantize_config.json").write_text(json.dumps({"bits": 4, "group_size": 64, "desc_act": False}))
    quant = read_checkpoint(folder).quant
    assert quant is not None
    assert (quant.method, quant.group_size) == ("gptq", 64)


def test_sixteen_bit_folders_say_their_type(tmp_path: Path) -> None:
    assert read_checkpoint(write_model(tmp_path / "a", torch_dtype="bfloat16")).format == "bf16"
    # transformers 5 writes `dtype`
    assert read_checkpoint(write_model(tmp_path / "b", torch_dtype=None, dtype="float16")).format == "fp16"
    unnamed = write_model(tmp_path / "c", {"x": np.zeros(4, np.int16)}, codes={"x": "BF16"}, torch_dtype=None)
    assert read_checkpoint(unnamed).format == "bf16"


@pytest.mark.parametrize(
    ("config", "words", "way_out"),
    [
        ({**GPTQ, "desc_act": True}, "act-order (desc_act true)", "desc_act=False"),
        ({**GPTQ, "bits": 3}, "GPTQ with 3 bits", "GPTQModel"),
        ({**GPTQ, "checkpoint_format": "gptq_v2"}, "layout 'gptq_v2'", "checkpoint_format=gptq"),
        ({**GPTQ, "group_size": -1}, "group_size -1", "groups of 128 or 64"),
        ({**AWQ, "version": "gemv"}, "layout 'gemv'", "gemm layout"),
        ({**AWQ, "bits": "four"}, "cannot be understood", "config.json"),
        ({"quant_method": "bitsandbytes"}, "bitsandbytes, which TensorRT-LLM does not read", "awq"),
        ({"load_in_4bit": True}, "an unnamed method", "awq"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "blocks of [64, 64]", ""),
        (weights_scheme(num_bits=3, type="int", strategy="group"), "3-bit int weights per group", "FP8"),
        (
            weights_scheme(num_bits=4, type="int", strategy="group", group_size=128, actorder="group"),
            "act-order 'group'",
            "actorder='weight'",
        ),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "0 groups of layers", ""),
        (
            {"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}},
            "sparse weights (sparse-24-bitmask)",
            "not pruned",
        ),
        ({"quant_method": "modelopt", "quant_algo": "W2A2"}, "quant_algo W2A2", "trtbuild formats"),
    ],
)
def test_what_nothing_can_read_is_refused_with_a_way_out(
    tmp_path: Path, config: dict[str, Any], words: str, way_out: str
) -> None:
    folder = write_model(tmp_path / "m", quantization_config=config)
    with pytest.raises(ModelSourceError) as raised:
        read_checkpoint(folder)
    assert words in raised.value.message
    assert way_out in " ".join(raised.value.remedies)


def test_a_group_size_that_contradicts_the_scales_is_refused_with_the_real_one(tmp_path: Path) -> None:
    for name, config, tensors in (
        ("awq", AWQ, awq_tensors(group=64)),
        ("gptq", GPTQ, gptq_tensors(group=64)),
    ):
        folder = write_model(tmp_path / name, tensors, quantization_config=config)
        with pytest.raises(ModelSourceError, match="4 scales for 256 inputs, groups of 64"):
            read_checkpoint(folder)


def test_act_order_is_seen_in_the_weights_whatever_the_configuration_says(tmp_path: Path) -> None:
    straight = write_model(tmp_path / "a", gptq_tensors(), quantization_config=GPTQ)
    assert read_checkpoint(straight).format == "gptq"
    shuffled = gptq_tensors(order=[1, 0] * 128)
    folder = write_model(tmp_path / "b", shuffled, quantization_config=GPTQ)
    with pytest.raises(ModelSourceError, match="is in act-order"):
        read_checkpoint(folder)


def test_pickled_weights_stay_closed(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelSourceError, match="pickled"):
        read_checkpoint(folder)


def shards(folder: Path, *, index: dict[str, str] | None = None) -> Path:
    """A whole model in two files."""
    write_model(folder)
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number, half in ((1, True), (2, False)):
        part = {name: values for name, values in model_tensors().items() if ("layers.0" in name) is half}
        file = f"model-0000{number}-of-00002.safetensors"
        (folder / file).write_bytes(safetensors_bytes(part))
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index or weight_map}))
    return folder


def test_shards_are_held_against_the_index(tmp_path: Path) -> None:
    assert read_checkpoint(shards(tmp_path / "whole")).size_bytes > 0
    lacking = shards(tmp_path / "lacking")
    (lacking / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelSourceError, match="shard 2 of 2 is missing"):
        read_checkpoint(lacking)
    with pytest.raises(ModelSourceError, match=r"names other\.safetensors, which is missing"):
        read_checkpoint(shards(tmp_path / "other", index={"layer.1.weight": "other.safetensors"}))
    wrong = {"layer.3.weight": "model-00001-of-00002.safetensors"}
    with pytest.raises(ModelSourceError, match=r"holds layer\.3\.weight, and it does not"):
        read_checkpoint(shards(tmp_path / "wrong", index=wrong))
    with pytest.raises(ModelSourceError, match="is missing"):
        read_checkpoint(shards(tmp_path / "up", index={"layer.1.weight": "../model.safetensors"}))


def test_a_cut_off_download_is_named_with_its_bytes(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelSourceError, match="cut off: its tensors end at byte"):
        read_checkpoint(folder)


def test_two_files_with_the_same_tensor_are_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "model-copy.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ModelSourceError, match=r"is in model-copy\.safetensors and in model\.safetensors"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 9) + b'{"a": 1}x',
        struct.pack("<Q", 20) + b'{"a": {"dtype": 1}}\n',
    ],
)
def test_what_is_no_safetensors_file_is_an_error_and_no_crash(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelSourceError):
        read_header(path)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "random.safetensors"
    path.write_bytes(content)
    try:
        found = read_header(path)
    except ModelSourceError:
        return
    assert all(info.end <= len(content) for info in found.values())


def test_tensors_are_read_in_their_own_types(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(
        safetensors_bytes(
            {
                "half": np.array([[1.5, -2.0]], np.float16),
                # 1.0 and -0.5 in bfloat16: 0x3F80, 0xBF00
                "brain": np.array([0x3F80, 0xBF00], np.uint16),
                # 0x38 = 1.0, 0x01 = 2⁻⁹ (smallest), 0x7E = 448 (largest), 0xB0 = -0.5
                "eight": np.array([0x38, 0x01, 0x7E, 0xB0], np.uint8),
            },
            {"brain": "BF16", "eight": "F8_E4M3"},
        )
    )
    tensors = read_headers(tmp_path)
    assert read_tensor(tensors["half"]).tolist() == [[1.5, -2.0]]
    assert read_tensor(tensors["brain"]).tolist() == [1.0, -0.5]
    assert read_tensor(tensors["eight"]).tolist() == [1.0, 2.0**-9, 448.0, -0.5]


def trtllm_folder(folder: Path, *, world_size: int = 2, ranks: int = 2) -> Path:
    folder.mkdir()
    config = {
        "architecture": "LlamaForCausalLM",
        "dtype": "float16",
        "model_type": "llama",
        "mapping": {"world_size": world_size, "tp_size": world_size},
        "quantization": {"quant_algo": "W4A16_AWQ", "group_size": 64, "kv_cache_quant_algo": None},
    }
    (folder / "config.json").write_text(json.dumps(config))
    for rank in range(ranks):
        content = safetensors_bytes({"transformer.ln_f.weight": np.ones(4, np.float16)})
        (folder / f"rank{rank}.safetensors").write_bytes(content)
    return folder


def test_a_tensorrt_llm_checkpoint_is_recognised_with_its_ranks(tmp_path: Path) -> None:
    found = read_checkpoint(trtllm_folder(tmp_path / "whole"))
    assert (found.kind, found.tp, found.format, found.group_size) == ("trtllm", 2, "awq", 64)
    with pytest.raises(ModelSourceError, match=r"2 ranks, and rank1\.safetensors is missing"):
        read_checkpoint(trtllm_folder(tmp_path / "lacking", ranks=1))


def test_kv_scales_are_counted_and_constant_ones_noticed(tmp_path: Path) -> None:
    def scales(*values: float) -> dict[str, Any]:
        return {
            f"model.layers.{place}.self_attn.k_proj.k_scale": np.array([value], np.float32)
            for place, value in enumerate(values)
        }

    constant = read_checkpoint(write_model(tmp_path / "a", scales(1.0, 1.0)))
    assert (constant.kv_scales, constant.constant_kv_scale) == (2, 1.0)
    varied = read_checkpoint(write_model(tmp_path / "b", scales(0.5, 1.0)))
    assert (varied.kv_scales, varied.constant_kv_scale) == (2, None)
