"""A model's text assets: the folder with Hugging Face's tokenizer.json and the files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .encoding import Encoder
from .errors import TemplateError, TokenizerError
from .template import ChatTemplate
from .tokenbytes import TokenBytes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
SPECIAL_TOKENS = "special_tokens_map.json"

_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class TextAssets:
    """Everything that turns text into a model's ids and back.

    Attributes:
        tokenizer: Hugging Face's fast tokenizer.
        table: bytes by id, special tokens as nothing.
        encoder: prompts and word lists to ids.
        special_tokens: ``bos_token`` and the like, as text.
        end_ids: every id that ends an answer: generation_config's ``eos_token_id`` (one or a list), else the
            tokenizer's ``eos_token``; the first is the ``end_id`` that goes to an engine.
        pad_id: the id for padding; the first end id where the model names none.

    Raises:
        TokenizerError: if the folder has no readable tokenizer.json.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        text = _read(folder / TOKENIZER)
        if text is None:
            raise TokenizerError(f"{folder} holds no {TOKENIZER}; put the model's fast tokenizer there")
        self.tokenizer = load_tokenizer(text)
        self.spec: dict[str, Any] = _object(text, folder / TOKENIZER)
        self.table = TokenBytes(self.spec)
        self.config = _read_object(folder / TOKENIZER_CONFIG)
        self.generation_config = _read_object(folder / GENERATION_CONFIG)
        fallback = _read_object(folder / SPECIAL_TOKENS)
        self.special_tokens: dict[str, str] = {}
        for name in _TOKEN_NAMES:
            token = _token_text(self.config.get(name, fallback.get(name)))
            if token is not None:
                self.special_tokens[name] = token
        self.bos_id = self._id_of("bos_token")
        self.end_ids = self._end_ids()
        pad_id = self._id_of("pad_token")
        self.pad_id = pad_id if pad_id is not None else (self.end_ids[0] if self.end_ids else 0)
        self.encoder = Encoder(self.tokenizer, bos_id=self.bos_id, adds_bos=self._adds_bos())
        self._template: ChatTemplate | None = None

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template.

        Raises:
            TemplateError: if the model has none, or a broken one.
        """
        if self._template is None:
            source = _read(self.folder / CHAT_TEMPLATE) or self.config.get("chat_template")
            if not source:
                raise TemplateError(
                    "the model has no chat template, so it cannot take messages; send the whole prompt as "
                    f"text, or put a {CHAT_TEMPLATE} into its tokenizer folder"
                )
            self._template = ChatTemplate(source, self.special_tokens)
        return self._template

    @property
    def vocab_size(self) -> int:
        """One more than the largest id of the tokenizer."""
        return len(self.table)

    def special_id(self, text: str) -> int | None:
        """The id of a special token spelt exactly ``text``, else None."""
        id_ = self.tokenizer.token_to_id(text)
        return id_ if id_ is not None and id_ in self.table.special_ids else None

    def _id_of(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self.tokenizer.token_to_id(token)

    def _end_ids(self) -> tuple[int, ...]:
        listed = self.generation_config.get("eos_token_id")
        ids = [listed] if isinstance(listed, int) else list(listed) if isinstance(listed, Sequence) else []
        eos_id = self._id_of("eos_token")
        if eos_id is not None and eos_id not in ids:
            ids.append(eos_id)
        return tuple(dict.fromkeys(int(id_) for id_ in ids))

    def _adds_bos(self) -> bool | None:
        """What tokenizer_config says about BOS, for the classes that heed it; None: as tokenizer.json."""
        stated = self.config.get("add_bos_token")
        name = str(self.config.get("tokenizer_class", "")).removesuffix("Fast")
        heeds = name in ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer")
        return stated if heeds and isinstance(stated, bool) else None


def load_tokenizer(text: str) -> Tokenizer:
    """Returns the tokenizer of a tokenizer.json's text.

    Raises:
        TokenizerError: if it is none, or of a form that the installed ``tokenizers`` does not know, or if
            that package is missing.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise TokenizerError(
            "tokenizer.json is read by the package tokenizers, which is not installed: pip install tokenizers"
        ) from None
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as exc:  # tokenizers raises bare Exception
        raise TokenizerError(f"tokenizer.json cannot be read by tokenizers: {exc}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _token_text(token: Any) -> str | None:
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise TokenizerError(f"{path} cannot be read: {exc}") from None


def _object(text: str, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise TokenizerError(f"{path} is not JSON: {exc}") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} is not a JSON object")
    return value


def _read_object(path: Path) -> dict[str, Any]:
    text = _read(path)
    return {} if text is None else _object(text, path)
