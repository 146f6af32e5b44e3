"""Weights that the CPU engine can load, and what their own headers say."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .limits import LoadRefused

# Architectures of GGUF files that were loaded and compared (tests/serve/test_weights.py); OpenVINO GenAI
# 2026.4.1 builds no others (gguf_modeling.cpp).
GGUF_ARCHITECTURES = ("llama", "qwen2", "qwen3")

CONVERT = (
    "Convert the Hugging Face checkpoint to OpenVINO IR: "
    "optimum-cli export openvino --model MODEL --weight-format int4 FOLDER"
)

# GGML's type numbers (gguf-py constants.py, GGMLQuantizationType).
GGUF_TENSOR_TYPES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 8: "Q8_0", 12: "Q4_K", 14: "Q6_K"}

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9  # gguf-py constants.py, GGUFValueType


@dataclass(frozen=True)
class Weights:
    """``path`` is what the pipeline opens; ``context_tokens`` is None where the files do not say."""

    path: Path
    context_tokens: int | None


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
        return _gguf_weights(ggufs[0])
    if (engine_dir / "openvino_model.xml").is_file():
        return Weights(engine_dir, None)
    if any(engine_dir.glob("rank*.engine")):
        raise LoadRefused(
            f"{engine_dir} holds compiled TensorRT engines; they need an NVIDIA GPU and target engine"
        )
    raise LoadRefused(
        f"{engine_dir} holds no weights for the CPU: neither a *.gguf file nor openvino_model.xml"
    )


def _gguf_weights(path: Path) -> Weights:
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
    return Weights(path, context if isinstance(context, int) else None)


@dataclass(frozen=True)
class GgufHeader:
    """``entries``: scalars and texts by key. ``tensors``: GGML type number by name."""

    entries: dict[str, Any]
    tensors: dict[str, int]


def read_gguf_header(path: Path) -> GgufHeader:
    """A GGUF file's header; arrays (the vocabulary) are skipped.

    Raises:
        LoadRefused: when the file is no GGUF of version 2 or 3, or ends inside its header.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise LoadRefused(f"{path.name} is not a GGUF file")
            version, tensor_count, entry_count = _unpack(file, "<IQQ")
            if version not in (2, 3):
                raise LoadRefused(f"{path.name} is GGUF version {version}; 2 and 3 can be read")
            entries = dict(_entry(file) for _ in range(entry_count))
            tensors = dict(_tensor(file) for _ in range(tensor_count))
    except (struct.error, UnicodeDecodeError, KeyError) as error:
        raise LoadRefused(f"{path.name} is damaged: its header cannot be read ({error})") from error
    return GgufHeader({key: value for key, value in entries.items() if value is not None}, tensors)


def _entry(file: BinaryIO) -> tuple[str, Any]:
    key = _text(file)
    return key, _value(file, _unpack(file, "<I")[0])


def _tensor(file: BinaryIO) -> tuple[str, int]:
    name = _text(file)
    (dimensions,) = _unpack(file, "<I")
    *_, kind, _offset = _unpack(file, f"<{dimensions}QIQ")
    return name, kind


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "<Q")
    data = file.read(length)
    if len(data) < length:
        raise struct.error("a text is cut off")
    return data.decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        return _unpack(file, "<" + _SCALARS[kind])[0]
    item, count = _unpack(file, "<IQ")
    if item in (_STRING, _ARRAY):
        for _ in range(count):
            _value(file, item)
    else:
        file.seek(count * struct.calcsize("<" + _SCALARS[item]), 1)
    return None
