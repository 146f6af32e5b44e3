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
    architecture = header.get("general.architecture")
    if architecture not in GGUF_ARCHITECTURES:
        known = ", ".join(GGUF_ARCHITECTURES)
        raise LoadRefused(
            f"{path.name} has the architecture {architecture!r}; the CPU engine builds {known}. {CONVERT}"
        )
    context = header.get(f"{architecture}.context_length")
    return Weights(path, context if isinstance(context, int) else None)


def read_gguf_header(path: Path) -> dict[str, Any]:
    """The scalar and text entries of a GGUF file's header; arrays (the vocabulary) are skipped.

    Raises:
        LoadRefused: when the file is no GGUF of version 2 or 3, or ends inside its header.
    """
    entries: dict[str, Any] = {}
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise LoadRefused(f"{path.name} is not a GGUF file")
            version, _tensors, count = _unpack(file, "<IQQ")
            if version not in (2, 3):
                raise LoadRefused(f"{path.name} is GGUF version {version}; 2 and 3 can be read")
            for _ in range(count):
                key = _text(file)
                value = _value(file, _unpack(file, "<I")[0])
                if value is not None:
                    entries[key] = value
    except (struct.error, UnicodeDecodeError, KeyError) as error:
        raise LoadRefused(f"{path.name} is damaged: its header cannot be read ({error})") from error
    return entries


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
