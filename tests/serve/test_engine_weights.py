from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.support.tiny_gguf import write_tiny_gguf

from trtbuild.serve.local.tensorrtllm.limits import LoadRefused
from trtbuild.serve.local.tensorrtllm.weights import find_weights, read_gguf_header


def test_the_header_says_architecture_and_context(tmp_path: Path) -> None:
    header = read_gguf_header(write_tiny_gguf(tmp_path / "m.gguf", architecture="qwen2", context=1234))
    assert header["general.architecture"] == "qwen2"
    assert header["qwen2.context_length"] == 1234
    assert header["qwen2.rope.freq_base"] == 10000.0
    assert header["tokenizer.ggml.model"] == "gpt2"


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_gguf_of_a_known_architecture_is_found(tmp_path: Path, architecture: str) -> None:
    path = write_tiny_gguf(tmp_path / "model.gguf", architecture=architecture, context=77)
    weights = find_weights(tmp_path)
    assert weights.path == path
    assert weights.context_tokens == 77


def test_another_architecture_is_refused_with_the_way_to_convert(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "model.gguf", architecture="gemma2")
    with pytest.raises(LoadRefused, match=r"'gemma2'; .* builds llama, qwen2, qwen3.*optimum-cli"):
        find_weights(tmp_path)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no weights for the CPU"),
        ({"rank0.engine": b"x"}, "compiled TensorRT engines; they need an NVIDIA GPU"),
        ({"a.gguf": b"", "b.gguf": b""}, "holds 2 GGUF files"),
        ({"a.gguf": b"PK\x03\x04"}, "a.gguf is not a GGUF file"),
        ({"a.gguf": b"GGUF" + struct.pack("<IQQ", 1, 0, 0)}, "GGUF version 1"),
        ({"a.gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 5) + b"\x01\x00"}, "a.gguf is damaged"),
        ({"a.gguf": b"GGUF\x03"}, "a.gguf is damaged"),
    ],
)
def test_folders_without_usable_weights(tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(LoadRefused, match=words):
        find_weights(tmp_path)


def test_a_file_that_ends_inside_its_header(tmp_path: Path) -> None:
    whole = write_tiny_gguf(tmp_path / "whole.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:700])
    with pytest.raises(LoadRefused, match="damaged"):
        read_gguf_header(tmp_path / "cut.gguf")
