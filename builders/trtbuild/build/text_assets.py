"""The text assets of a model: tokenizer.json and the files beside it, in Hugging Face's own formats.

A front finds them in its folder ``tokenizer/``. They come with a checkpoint or an OpenVINO IR folder as they
are; a GGUF file carries the same facts in its metadata, from which they are written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtbuild.build.gguf_tokenizer import tokenizer_json
from trtbuild.errors import ModelSourceError, TrtbuildError

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
)

# Control tokens that end a turn in one family or another; llama.cpp's own list of end-of-generation tokens.
_TURN_ENDS = frozenset(
    {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "</s>",
    }
)
_CONTROL = 3  # llama.cpp, enum llama_token_type


def write_text_assets(source: Path, target: Path) -> tuple[str, ...]:
    """Writes the text assets of ``source`` into the folder ``target``; returns the names written.

    Args:
        source: a GGUF file, or a folder with a tokenizer.json (a checkpoint, or an OpenVINO IR folder).

    Raises:
        ModelSourceError: no tokenizer there, or one that cannot be written as tokenizer.json.
    """
    contents = _from_gguf(source) if source.suffix == ".gguf" else _from_folder(source)
    target.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (target / name).write_bytes(content)
    return tuple(contents)


def _from_folder(folder: Path) -> dict[str, bytes]:
    found = {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}
    if "tokenizer.json" not in found:
        raise ModelSourceError(
            f"{folder} holds no tokenizer.json, which the text front reads",
            "save the fast tokenizer into it: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        )
    return found


def _from_gguf(path: Path) -> dict[str, bytes]:
    metadata = _gguf_metadata(path)
    try:
        tokenizer = tokenizer_json(metadata)
    except TrtbuildError as error:
        raise ModelSourceError(f"{path}: {error.message}", *error.remedies) from error
    written = {
        "tokenizer.json": _json(tokenizer, indent=None),
        "tokenizer_config.json": _json(_tokenizer_config(metadata)),
        "generation_config.json": _json(_generation_config(metadata)),
    }
    template = metadata.get("tokenizer.chat_template")
    if template:
        written["chat_template.jinja"] = str(template).encode()
    return written


def _json(value: Mapping[str, Any], *, indent: int | None = 2) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode()


def _gguf_metadata(path: Path) -> dict[str, Any]:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelSourceError(
            f"reading the tokenizer of {path} needs the package gguf, which is not installed",
            "pip install 'trtbuild[local]'",
        ) from error
    try:
        fields = GGUFReader(path).fields
    except (ValueError, OSError, IndexError) as error:
        raise ModelSourceError(
            f"{path}: not a readable GGUF file ({error})", "fetch the file again"
        ) from error
    return {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer.")}


def _token(metadata: Mapping[str, Any], name: str) -> str | None:
    id_ = metadata.get(f"tokenizer.ggml.{name}_token_id")
    tokens: Sequence[str] = metadata["tokenizer.ggml.tokens"]
    return tokens[id_] if isinstance(id_, int) and 0 <= id_ < len(tokens) else None


def _tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    tokens = {f"{name}_token": _token(metadata, key) for name, key in names.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bool(
            metadata.get("tokenizer.ggml.add_bos_token", metadata["tokenizer.ggml.model"] == "llama")
        ),
        **{name: token for name, token in tokens.items() if token is not None},
    }


def _generation_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """End ids: those that the file names, then every control token that is known to end a turn."""
    named = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata.get("tokenizer.ggml.token_type") or ()
    known = [
        id_
        for id_, (token, kind) in enumerate(zip(tokens, types, strict=False))
        if kind == _CONTROL and token in _TURN_ENDS
    ]
    ends = list(dict.fromkeys(id_ for id_ in (*named, *known) if isinstance(id_, int)))
    written: dict[str, Any] = {"eos_token_id": ends}
    for key, name in (("bos_token_id", "bos"), ("pad_token_id", "padding")):
        id_ = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(id_, int):
            written[key] = id_
    return written
