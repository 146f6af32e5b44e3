"""The text assets of a model: tokenizer.json and the files beside it, in Hugging Face's own formats.

A front finds them in its folder ``tokenizer/``. They come with a checkpoint or an OpenVINO IR folder as they
are; a GGUF file carries the same facts in its metadata, from which they are written.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtbuild.build.gguf_tokenizer import tokenizer_json
from trtbuild.build.sentencepiece import sentencepiece_metadata
from trtbuild.build.weights import gguf_header
from trtbuild.errors import ModelSourceError, TrtbuildError

if TYPE_CHECKING:
    from tritonstream.text import TextAssets

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
_COMPARED = 200  # sequences of ids


def write_text_assets(source: Path, target: Path) -> tuple[str, ...]:
    """Writes the text assets of ``source`` into the folder ``target``; returns the names written.

    What is written is loaded as the front loads it, and its table of bytes compared with the tokenizer's own
    decoding, so that a tokenizer that would stream wrong text is refused here.

    Args:
        source: a GGUF file; or a folder with a tokenizer.json, or else a SentencePiece tokenizer.model (a
            checkpoint, or an OpenVINO IR folder).

    Raises:
        ModelSourceError: no tokenizer there, or one that cannot be written or decoded exactly; or the package
            that reads it is missing.
    """
    if find_spec("tokenizers") is None:
        raise ModelSourceError(
            f"{source}: its tokenizer is tried with the package tokenizers, which is not installed",
            "run: pip install tokenizers",
        )
    contents = _from_gguf(source) if source.suffix == ".gguf" else _from_folder(source)
    target.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (target / name).write_bytes(content)
    ends = check_text_assets(target, source)
    if ends and "generation_config.json" not in contents:
        contents["generation_config.json"] = _json({"eos_token_id": ends})
        (target / "generation_config.json").write_bytes(contents["generation_config.json"])
    return tuple(contents)


def check_text_assets(folder: Path, source: Path) -> list[int]:
    """Loads a folder of text assets and compares its decoding with the tokenizer's own.

    Returns:
        The ids that end an answer. Where no generation_config.json names them: the tokenizer's eos_token,
        and the special token that the chat template puts behind the assistant's words.

    Raises:
        ModelSourceError: if it cannot be loaded, or decodes otherwise.
    """
    from tritonstream.text import TextAssets, TextError

    try:
        assets = TextAssets(folder)
        different = _decodes_otherwise(assets)
    except TextError as error:
        raise ModelSourceError(f"{source}: {error}", "use a model with another tokenizer") from error
    if different is not None:
        ids, ours, theirs = different
        raise ModelSourceError(
            f"{source}: token by token the ids {ids} are {ours!r}, but {theirs!r} as a whole",
            "use a model with another tokenizer; this one cannot be streamed exactly",
        )
    ends = list(assets.end_ids)
    turn_end = None if assets.generation_config else _turn_end(assets)
    return ends if turn_end is None or turn_end in ends else [*ends, turn_end]


def _decodes_otherwise(assets: TextAssets) -> tuple[list[int], str, str] | None:
    """The first of some hundred sequences of ids that our table decodes otherwise than the tokenizer."""
    chance = random.Random(0)
    for _ in range(_COMPARED):
        ids = [chance.randrange(assets.vocab_size) for _ in range(8)]
        ours, theirs = assets.table.decode(ids), assets.tokenizer.decode(ids)
        # both mark broken characters, though not always as many times
        if "\ufffd" not in ours + theirs and ours != theirs:
            return ids, ours, theirs
    return None


def _turn_end(assets: TextAssets) -> int | None:
    """The special token that the chat template puts behind the assistant's words, if there is one."""
    from tritonstream.text import TextError

    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "[the answer]"}]
    try:
        text = assets.template.render(messages, add_generation_prompt=False)
    except TextError:
        return None
    _, _, behind = text.rpartition("[the answer]")
    special = (id_ for id_ in assets.encoder.word(behind) if id_ in assets.table.special_ids)
    return next(special, None)


def _from_folder(folder: Path) -> dict[str, bytes]:
    found = {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}
    if "tokenizer.json" not in found:
        model = folder / "tokenizer.model"
        if not model.is_file():
            raise ModelSourceError(
                f"{folder} holds no tokenizer.json, which the text front reads",
                "save the fast one there: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
            )
        metadata = sentencepiece_metadata(model)
        found["tokenizer.json"] = _json(tokenizer_json(metadata), indent=None)
        found.setdefault("tokenizer_config.json", _json(_tokenizer_config(metadata)))
    return _with_named_templates(folder, found)


def _with_named_templates(folder: Path, found: dict[str, bytes]) -> dict[str, bytes]:
    """Joins the templates of ``additional_chat_templates`` into one named list, in tokenizer_config.json."""
    named = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if not named:
        return found
    config = json.loads(found.get("tokenizer_config.json", b"{}"))
    default = found.pop("chat_template.jinja", None)
    templates = {"default": default.decode()} if default is not None else {}
    templates |= {name: path.read_text(encoding="utf-8") for name, path in named.items()}
    config["chat_template"] = [{"name": name, "template": text} for name, text in templates.items()]
    return {**found, "tokenizer_config.json": _json(config)}


def _from_gguf(path: Path) -> dict[str, bytes]:
    metadata = gguf_header(path, arrays="tokenizer.").entries
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
    prefix = "tokenizer.chat_template."
    named = {key.removeprefix(prefix): text for key, text in metadata.items() if key.startswith(prefix)}
    if named:
        templates = {**({"default": template} if template else {}), **named}
        config = _tokenizer_config(metadata)
        config["chat_template"] = [{"name": name, "template": text} for name, text in templates.items()]
        written["tokenizer_config.json"] = _json(config)
    elif template:
        written["chat_template.jinja"] = str(template).encode()
    return written


def _json(value: Mapping[str, Any], *, indent: int | None = 2) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode()


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
