from __future__ import annotations

import asyncio
import importlib.util
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.engine_child import generate, write_ir
from tests.support.engine_repo import engine_config, write_engine
from tests.support.grpc_engine import EngineClient, request
from tests.support.reference_lm import ReferenceLm
from tests.support.tiny_gguf import write_tiny_gguf

from trtbuild.serve.local.tensorrtllm.gguf import read_gguf_header
from trtbuild.serve.local.tensorrtllm.limits import LoadRefused
from trtbuild.serve.local.tensorrtllm.weights import (
    GGUF_ARCHITECTURES,
    Weights,
    find_weights,
)
from trtbuild.serve.server import start

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("openvino_genai") is None, reason="pip install 'trtbuild[local]'"
)


def test_the_header_says_architecture_and_context(tmp_path: Path) -> None:
    header = read_gguf_header(write_tiny_gguf(tmp_path / "m.gguf", architecture="qwen2", context=1234))
    assert header.entries["general.architecture"] == "qwen2"
    assert header.entries["qwen2.context_length"] == 1234
    assert header.entries["qwen2.rope.freq_base"] == 10000.0
    assert header.entries["tokenizer.ggml.model"] == "gpt2"
    assert header.tensors["blk.1.attn_q.weight"] == 1  # float16
    assert header.tensors["output_norm.weight"] == 0  # float32


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_gguf_of_a_known_architecture_is_found(tmp_path: Path, architecture: str) -> None:
    path = write_tiny_gguf(tmp_path / "model.gguf", architecture=architecture, context=77)
    weights = find_weights(tmp_path)
    assert weights.path == path
    assert weights.context_tokens == 77
    assert weights.vocab_size == 259


def test_weights_that_cannot_be_opened_for_writing_are_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_gguf(tmp_path / "model.gguf", architecture="llama")
    monkeypatch.setattr("os.access", lambda file, mode: (file, mode) != (path, os.W_OK))
    with pytest.raises(LoadRefused, match=r"model\.gguf is read-only"):
        find_weights(tmp_path)


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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer": "llama"}, "a tokenizer of kind 'llama'"),  # SentencePiece
        ({"rope_scaling": "yarn"}, "scales its rotary positions"),
        ({"rope_freqs": True}, "scales its rotary positions"),  # as Llama 3.1 and later
        ({"norm_type": np.float64}, "tensors of GGML type 28"),
    ],
)
def test_what_the_engine_would_read_wrongly_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    write_tiny_gguf(tmp_path / "model.gguf", **changes)
    with pytest.raises(LoadRefused, match=words):
        find_weights(tmp_path)


@needs_engine
@pytest.mark.parametrize("architecture", GGUF_ARCHITECTURES)
def test_the_engine_computes_what_the_file_means(tmp_path: Path, architecture: str) -> None:
    path = write_tiny_gguf(tmp_path / "model.gguf", architecture=architecture)
    reference = ReferenceLm(path)
    context, ids, log_probs = generate(path, 12)
    assert len(ids) == 12
    for token, log_prob in zip(ids, log_probs, strict=True):
        expected = reference.log_probs(context)
        assert expected[token] == pytest.approx(log_prob, abs=0.02)
        assert expected[token] > expected.max() - 0.05  # greedy
        context.append(token)


@needs_engine
def test_an_ir_folder_gives_what_its_gguf_gave(tmp_path: Path) -> None:
    """Beside the IR lies TensorRT-LLM's config.json, and neither a tokenizer nor a Hugging Face config."""
    (tmp_path / "source").mkdir()
    gguf = write_tiny_gguf(tmp_path / "source" / "model.gguf")
    write_ir(gguf)
    engine = tmp_path / "engine"
    engine.mkdir()
    for file in gguf.parent.glob("openvino_model.*"):
        file.rename(engine / file.name)
    (engine / "config.json").write_text('{"build_config": {}}')
    weights = find_weights(engine)
    assert weights == Weights(engine, None, None)
    _, ids, log_probs = generate(weights.path, 12)
    _, expected_ids, expected = generate(gguf, 12)
    assert ids == expected_ids
    assert log_probs == pytest.approx(expected, abs=0.02)


@pytest.mark.server
def test_weights_on_which_a_bfloat16_kernel_crashes_are_served(tmp_path: Path) -> None:
    """OpenVINO 2026.4.1 crashes on these where it chooses bfloat16, as it does on a CPU with AMX."""
    weights = write_tiny_gguf(tmp_path / "odd.gguf", layers=1, hidden=32, heads=1, kv_heads=1)
    write_engine(tmp_path / "repository", weights, config=engine_config("odd"))

    async def answer(address: str) -> list[int]:
        async with EngineClient(address) as client:
            return (await client.answer(request("odd", [5, 6, 7], 4))).ids

    with start(tmp_path / "repository") as server:
        assert len(asyncio.run(answer(server.grpc_address))) == 4
