"""The front's parameters, from config.pbtxt; ``model`` says what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_KINDS: Mapping[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": _truth}


@dataclass(frozen=True)
class Settings:
    """One front's parameters, with their defaults."""

    engine_model: str
    engine_address: str = "127.0.0.1:8001"
    max_input_tokens: int = 0  # 0: no limit but max_seq_len
    max_output_tokens: int = 512
    max_seq_len: int = 0  # 0: not known
    engine_vocab_size: int = 0  # 0: the tokenizer's
    min_tokens_input: str = "min_tokens"
    seed_input: str = "seed"
    tokens_per_block: int = 0  # 0: no KV reuse
    kv_tokens: int = 0
    max_requests: int = 0  # 0: no limit
    tokenizer_dir: str = "tokenizer"
    cancel_poll_ms: float = 20.0
    coalesce: bool = True

    @classmethod
    def from_config(cls, config: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Settings:
        """Reads the parameters of a model config.

        Args:
            config: the parsed ``model_config`` that Triton gives to ``initialize``.
            environ: ``TRTBUILD_GRPC_ADDRESS``, set by the launcher, goes before ``engine_address``.

        Raises:
            ValueError: for a missing engine_model, an unknown parameter or one of a wrong type.
        """
        given = {key: entry["string_value"] for key, entry in (config.get("parameters") or {}).items()}
        fields = cls.__dataclass_fields__
        unknown = sorted(set(given) - set(fields) - {"interface"})
        if unknown:
            raise ValueError(f"unknown parameter {unknown[0]!r}; known are {', '.join(fields)}")
        if not given.get("engine_model"):
            raise ValueError("parameter 'engine_model' is missing: the name of the engine's model")
        values: dict[str, Any] = {}
        for key, text in given.items():
            if key == "interface":
                continue
            kind = _KINDS.get(str(fields[key].type), str)
            try:
                values[key] = kind(text)
            except ValueError:
                raise ValueError(
                    f"parameter {key!r} must be of type {fields[key].type}, not {text!r}"
                ) from None
        address = environ.get("TRTBUILD_GRPC_ADDRESS")
        if address:
            values["engine_address"] = address
        return cls(**values)
