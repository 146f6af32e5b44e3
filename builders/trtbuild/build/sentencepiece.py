"""The vocabulary of a SentencePiece ``tokenizer.model``, as the keys that a GGUF file has for it.

Fields of sentencepiece_model.proto: ModelProto{pieces=1, trainer_spec=2, normalizer_spec=3},
SentencePiece{piece=1, score=2, type=3}, TrainerSpec{model_type=3, unk_id=40, bos_id=41, eos_id=42,
pad_id=43}, NormalizerSpec{add_dummy_prefix=3}. Piece types are those of a GGUF's ``token_type``.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from trtbuild.errors import ModelSourceError
from trtbuild_templates.llm_front.protobuf import ProtobufError, fields

_UNIGRAM, _BPE = 1, 2
_NORMAL = 1
_IDS = {40: ("unknown", 0), 41: ("bos", 1), 42: ("eos", 2), 43: ("padding", -1)}


def sentencepiece_metadata(path: Path) -> dict[str, Any]:
    """Reads a ``tokenizer.model``.

    Returns:
        GGUF keys ``tokenizer.ggml.*`` with their values, ids below 0 left out.

    Raises:
        ModelSourceError: if the file is none, or its model is no BPE.
    """
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    try:
        for field, _, content in fields(path.read_bytes()):
            if field == 1:
                piece = _message(content)
                pieces.append((piece[1].decode(), _float(piece.get(2, b"\0" * 4)), piece.get(3, _NORMAL)))
            elif field == 2:
                trainer = _message(content)
            elif field == 3:
                normalizer = _message(content)
    except (ProtobufError, KeyError, struct.error, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise ModelSourceError(f"{path} is no SentencePiece model", "fetch the file again") from error
    kind = trainer.get(3, _UNIGRAM)
    if not pieces or kind != _BPE:
        raise ModelSourceError(
            f"{path} holds a SentencePiece model of type {kind}; only BPE (type {_BPE}) is written exactly",
            "save the fast tokenizer there: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        )
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [text for text, _, _ in pieces],
        "tokenizer.ggml.scores": [score for _, score, _ in pieces],
        "tokenizer.ggml.token_type": [type_ for _, _, type_ in pieces],
        "tokenizer.ggml.add_space_prefix": bool(normalizer.get(3, 1)),
    }
    for field, (name, default) in _IDS.items():
        id_ = _signed(trainer.get(field, default))
        if id_ >= 0:
            metadata[f"tokenizer.ggml.{name}_token_id"] = id_
    return metadata


def _message(data: bytes) -> dict[int, Any]:
    """Fields by number: numbers as int, all else as bytes."""
    return {number: content or value for number, value, content in fields(data)}


def _float(data: bytes) -> float:
    (value,) = struct.unpack("<f", data)
    return float(value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
