"""Hugging Face's tokenizer.json from the vocabulary of a GGUF file.

A GGUF file carries tokens, their types, merges (byte-level BPE) or scores (SentencePiece), and the *name* of
the pre-tokenizer. What that name means is code elsewhere, so only names whose rules are known here are taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trtbuild.errors import ModelSourceError

# llama.cpp, enum llama_token_type; unused ones only fill the vocabulary up to the embedding's size
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 2, 3, 4, 5, 6

_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_LLAMA3_SPLIT = _QWEN2_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O_SPLIT = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENGLISH}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK3_SPLITS = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_BYTES_ONLY = {**_BYTE_LEVEL, "use_regex": False}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


# Pre-tokenizer steps by the name in `tokenizer.ggml.pre`, as in the tokenizer.json of the models that name
# it: HuggingFaceTB/SmolLM2, openai-community/gpt2, Qwen/Qwen2.5, meta-llama/Llama-3, openai/gpt-oss,
# deepseek-ai/DeepSeek-V3.
_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "smollm": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    "gpt-2": [_BYTE_LEVEL],
    "qwen2": [_split(_QWEN2_SPLIT), _BYTES_ONLY],
    "llama-bpe": [_split(_LLAMA3_SPLIT), _BYTES_ONLY],
    "gpt-4o": [_split(_GPT4O_SPLIT), _BYTES_ONLY],
    "deepseek-v3": [*map(_split, _DEEPSEEK3_SPLITS), _BYTES_ONLY],
}
_NFC = frozenset({"qwen2"})  # names whose tokenizer normalises to NFC first
_IGNORES_MERGES = frozenset({"llama-bpe", "gpt-4o"})  # a word that is a token is taken whole
_BEGINS_WITH_BOS = frozenset({"llama-bpe", "deepseek-v3"})  # where the file says nothing


def tokenizer_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The content of tokenizer.json.

    Args:
        metadata: GGUF keys and values, arrays as lists; the ``tokenizer.ggml.*`` ones are read.

    Raises:
        ModelSourceError: a kind of tokenizer, or a pre-tokenizer, whose rules are not known here.
    """
    kind = metadata.get("tokenizer.ggml.model")
    tokens: Sequence[str] = metadata.get("tokenizer.ggml.tokens", ())
    if not tokens:
        raise ModelSourceError(
            "the GGUF file holds no vocabulary", "use a GGUF file with its tokenizer inside"
        )
    types = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    if kind == "gpt2":
        body = _byte_level(metadata, tokens, types)
    elif kind == "llama":
        body = _sentencepiece(metadata, tokens, types)
    else:
        raise ModelSourceError(
            f"its tokenizer is of kind {kind!r}; known: gpt2 (byte-level BPE), llama (SentencePiece)",
            "put the model's own tokenizer.json beside it: --weights a folder with both",
        )
    added = [
        {"id": id_, "content": token, "special": kind_ != _USER_DEFINED, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False}
        for id_, (token, kind_) in enumerate(zip(tokens, types, strict=True))
        if kind_ in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]  # fmt: skip
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **body}


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]) -> dict[str, Any]:
    name = metadata.get("tokenizer.ggml.pre", "default")
    steps = _PRE_TOKENIZERS.get(name)
    if steps is None:
        raise ModelSourceError(
            f"the GGUF file's pre-tokenizer is {name!r}, and its rules are not known here; known are "
            + ", ".join(sorted(_PRE_TOKENIZERS)),
            "use --weights with the model's OpenVINO IR or safetensors folder, which holds a tokenizer.json",
        )
    return {
        "normalizer": {"type": "NFC"} if name in _NFC else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": _bos_processor(metadata, tokens, default=name in _BEGINS_WITH_BOS),
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": name in _IGNORES_MERGES,
            "vocab": _vocabulary(tokens, types),
            "merges": list(metadata.get("tokenizer.ggml.merges", ())),
        },
    }


def _sentencepiece(
    metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> dict[str, Any]:
    scores = metadata.get("tokenizer.ggml.scores")
    if scores is None:
        raise ModelSourceError(
            "the GGUF file's SentencePiece vocabulary has no scores", "fetch the file again"
        )
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    unknown = tokens[int(metadata.get("tokenizer.ggml.unknown_token_id", 0))]
    normalizers: list[dict[str, Any]] = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
    normalizers.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "post_processor": _bos_processor(metadata, tokens, default=True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": _vocabulary(tokens, types),
            "merges": _merges_of_scores(tokens, scores, types),
        },
    }


def _vocabulary(tokens: Sequence[str], types: Sequence[int]) -> dict[str, int]:
    return {token: id_ for id_, token in enumerate(tokens) if types[id_] != _UNUSED}


def _merges_of_scores(
    tokens: Sequence[str], scores: Sequence[float], types: Sequence[int]
) -> list[list[str]]:
    """SentencePiece joins the pair whose piece scores best: as merges, pairs in the order of those scores."""
    pieces = {
        token: score
        for token, score, kind in zip(tokens, scores, types, strict=True)
        if kind not in (_CONTROL, _USER_DEFINED, _BYTE)
    }
    ranked: list[tuple[float, int, int, str, str]] = []
    for piece, score in pieces.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in pieces and right in pieces:
                # runs of spaces share one score; Hugging Face's converter takes long parts first
                ranked.append((-score, -len(left), -len(right), left, right))
    ranked.sort(key=lambda entry: entry[:3])
    return [[left, right] for _, _, _, left, right in ranked]


def _bos_processor(
    metadata: Mapping[str, Any], tokens: Sequence[str], *, default: bool
) -> dict[str, Any] | None:
    """Puts BOS before a text, where the file says that the model wants it."""
    bos_id = metadata.get("tokenizer.ggml.bos_token_id")
    if bos_id is None or not metadata.get("tokenizer.ggml.add_bos_token", default):
        return None
    bos = tokens[int(bos_id)]
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [int(bos_id)], "tokens": [bos]}},
    }
