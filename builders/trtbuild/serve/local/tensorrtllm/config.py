"""Settings of one engine from its model configuration and its engine folder."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .contract import PARAMETER_BY_KEY
from .limits import Limits, LoadRefused, blocks_of, positive, read_build_config
from .settings import Settings
from .weights import Weights, find_weights

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}  # as the C++ backend reads them


class Parameters:
    """The ``parameters`` of a config.pbtxt, checked against the contract when made.

    Raises:
        LoadRefused: for a key that TensorRT-LLM does not have, a placeholder that was left in, or a value
            that cannot be honoured.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._values: dict[str, str] = {}
        for key, entry in parameters.items():
            value = str(entry["string_value"])
            rule = PARAMETER_BY_KEY.get(key)
            if rule is None:
                near = difflib.get_close_matches(key, PARAMETER_BY_KEY, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise LoadRefused(f"parameter {key} is not one of the tensorrtllm backend's{hint}")
            if "${" in value:
                raise LoadRefused(
                    f"parameter {key} still is the placeholder {value!r}; fill it in, or remove it"
                )
            rule.check(value)
            self._values[key] = value.strip()

    def text(self, key: str) -> str:
        return self._values.get(key, "")

    def boolean(self, key: str, default: bool) -> bool:
        value = self.text(key)
        if not value:
            return default
        if value.lower() not in _BOOLEANS:
            raise LoadRefused(f"parameter {key} is {value!r}; true, false, 1 or 0 is needed")
        return _BOOLEANS[value.lower()]

    def count(self, key: str, default: int) -> int:
        """A whole number of at least 1."""
        value = self.text(key)
        if not value:
            return default
        if not value.isdecimal() or int(value) < 1:
            raise LoadRefused(f"parameter {key} is {value!r}; a positive whole number is needed")
        return int(value)


@dataclass(frozen=True)
class ModelSettings:
    """What the stub itself needs, and ``engine`` for the worker."""

    engine: Settings
    exclude_input: bool
    cancellation_period_s: float
    batched: bool  # tensors have a leading batch dimension


def read_settings(model_config: Mapping[str, Any], threads: int = 0) -> ModelSettings:
    """Settings of the model whose configuration Triton gives as a dict.

    Raises:
        LoadRefused: for anything that cannot be served, with what would work.
    """
    parameters = Parameters(model_config.get("parameters", {}))
    if not model_config.get("model_transaction_policy", {}).get("decoupled", False):
        raise LoadRefused("the model is not decoupled; set model_transaction_policy { decoupled: true }")
    engine_path = parameters.text("gpt_model_path")
    if not engine_path:
        raise LoadRefused(
            "parameter gpt_model_path is missing; it names the folder of config.json and the weights"
        )
    engine_dir = Path(engine_path).absolute()
    weights = find_weights(engine_dir)
    limits = _read_limits(model_config, parameters, engine_dir, weights)
    return ModelSettings(
        engine=Settings(
            weights=weights.path,
            limits=limits,
            stats_period_s=parameters.count("stats_check_period_ms", 100) / 1000,
            threads=threads,
            guided=bool(parameters.text("guided_decoding_backend")),
        ),
        exclude_input=parameters.boolean("exclude_input_in_output", False),
        cancellation_period_s=parameters.count("cancellation_check_period_ms", 100) / 1000,
        batched=model_config.get("max_batch_size", 0) > 0,
    )


def _read_limits(
    model_config: Mapping[str, Any], parameters: Parameters, engine_dir: Path, weights: Weights
) -> Limits:
    build, pretrained = read_build_config(engine_dir)
    max_seq_len = positive(build, "max_seq_len")
    for length in (weights.context_tokens, pretrained.get("max_position_embeddings")):
        if isinstance(length, int) and length > 0:
            max_seq_len = min(max_seq_len, length)
    window = parameters.text("max_attention_window_size")
    if any(part.strip() and int(part) < max_seq_len for part in window.split(",")):
        raise LoadRefused(
            f"parameter max_attention_window_size is {window!r}, and the CPU engine attends to the whole "
            f"sequence of {max_seq_len} tokens; leave it empty"
        )
    tokens_per_block = positive(
        build.get("plugin_config", {}), "tokens_per_block", "build_config.plugin_config"
    )
    if tokens_per_block != ENGINE_TOKENS_PER_BLOCK:
        raise LoadRefused(
            f"tokens_per_block is {tokens_per_block}; the CPU engine's blocks hold "
            f"{ENGINE_TOKENS_PER_BLOCK} tokens"
        )
    max_sequences = positive(build, "max_batch_size")
    pool_tokens = parameters.count("max_tokens_in_paged_kv_cache", max_sequences * max_seq_len)
    pool_blocks = blocks_of(pool_tokens, tokens_per_block)
    queue_policy = (model_config.get("dynamic_batching") or {}).get("default_queue_policy") or {}
    return Limits(
        max_sequences=max_sequences,
        max_num_tokens=positive(build, "max_num_tokens"),
        max_seq_len=min(max_seq_len, pool_blocks * tokens_per_block),
        tokens_per_block=tokens_per_block,
        pool_blocks=pool_blocks,
        max_beam_width=parameters.count("max_beam_width", 1),
        max_queue_size=int(queue_policy.get("max_queue_size", 0)),
        chunked_context=parameters.boolean("enable_chunked_context", False),
        kv_reuse=parameters.boolean("enable_kv_cache_reuse", True),
        vocab_size=weights.vocab_size or positive(pretrained, "vocab_size", "pretrained_config"),
    )


ENGINE_TOKENS_PER_BLOCK = 32  # OpenVINO's CPU plugin, 2026.4
