"""Weights that the CPU engine can load, and what their own headers say."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .gguf import GGUF_TENSOR_TYPES, read_gguf_header
from .limits import LoadRefused

# Architectures of GGUF files that were loaded and compared (tests/serve/test_weights.py); OpenVINO GenAI
# 2026.4.1 builds no others (gguf_modeling.cpp).
GGUF_ARCHITECTURES = ("llama", "qwen2", "qwen3")

CONVERT = (
    "Convert the Hugging Face checkpoint to OpenVINO IR: "
    "optimum-cli export openvino --model MODEL --weight-format int4 FOLDER"
)


@dataclass(frozen=True)
class Weights:
    """``path`` is what the pipeline opens; the rest is None where the files do not say."""

    path: Path
    context_tokens: int | None
    vocab_size: int | None


def find_weights(engine_dir: Path) -> Weights:
    """The weights in an engine folder: one GGUF file, or an OpenVINO IR.

    Raises:
        LoadRefused: when there is none, more than one, a compiled TensorRT engine, or an architecture that
            the engine cannot build.
    """
    ggufs = sorted(engine_dir.glob("*.gguf"))
    if len(ggufs) > 1:
        raise LoadRefused(f"{engine_dir} holds {len(ggufs)} GGUF files; keep the one that shall be served")
    if ggufs:
        if not os.access(ggufs[0], os.W_OK):  # seen with OpenVINO GenAI 2026.4, file system mounted read-only
            raise LoadRefused(
                f"{ggufs[0]} is read-only; the CPU engine changes nothing in it, and its GGUF reader opens "
                "files for writing all the same. Let this user write it, or serve a writable copy"
            )
        return gguf_weights(ggufs[0])
    if (engine_dir / "openvino_model.xml").is_file():
        return Weights(engine_dir, None, None)
    if any(engine_dir.glob("rank*.engine")):
        raise LoadRefused(
            f"{engine_dir} holds compiled TensorRT engines; they need an NVIDIA GPU and target engine"
        )
    raise LoadRefused(
        f"{engine_dir} holds no weights for the CPU: neither a *.gguf file nor openvino_model.xml"
    )


def gguf_weights(path: Path) -> Weights:
    """A GGUF file that the engine can run as it was meant.

    Raises:
        LoadRefused: when it is damaged, or the engine would refuse it or read it wrongly.
    """
    header = read_gguf_header(path)
    architecture = header.entries.get("general.architecture")
    if architecture not in GGUF_ARCHITECTURES:
        known = ", ".join(GGUF_ARCHITECTURES)
        raise LoadRefused(
            f"{path.name} has the architecture {architecture!r}; the CPU engine builds {known}. {CONVERT}"
        )
    tokenizer = header.entries.get("tokenizer.ggml.model")
    if tokenizer != "gpt2":  # gguf_tokenizer.cpp reads no other
        raise LoadRefused(
            f"{path.name} has a tokenizer of kind {tokenizer!r}; the CPU engine reads byte-level BPE "
            f"('gpt2') out of a GGUF. {CONVERT}"
        )
    scaling = header.entries.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in header.tensors:  # gguf_modeling.cpp knows the base alone
        raise LoadRefused(
            f"{path.name} scales its rotary positions, which the CPU engine leaves out when it reads a GGUF, "
            f"so that long prompts would come out wrong. {CONVERT}"
        )
    odd = {kind for kind in header.tensors.values() if kind not in GGUF_TENSOR_TYPES}
    if odd:
        raise LoadRefused(
            f"{path.name} holds tensors of GGML type {', '.join(map(str, sorted(odd)))}; the CPU engine "
            f"reads {', '.join(GGUF_TENSOR_TYPES.values())}. Quantise to one of these. {CONVERT}"
        )
    context = header.entries.get(f"{architecture}.context_length")
    _, *rows = header.shapes.get("token_embd.weight", (0,))
    return Weights(path, context if isinstance(context, int) else None, rows[0] if rows else None)
