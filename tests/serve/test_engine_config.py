from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.tiny_gguf import write_tiny_gguf

from trtbuild.serve.local.tensorrtllm.config import read_settings
from trtbuild.serve.local.tensorrtllm.limits import LoadRefused

BUILD = {
    "max_batch_size": 16,
    "max_num_tokens": 256,
    "max_seq_len": 2048,
    "plugin_config": {"tokens_per_block": 32},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    write_tiny_gguf(folder / "model.gguf", context=1024)
    (folder / "config.json").write_text(json.dumps({"build_config": BUILD}))
    return folder


def model_config(engine: Path, decoupled: bool = True, **parameters: str) -> dict[str, Any]:
    """As Triton hands it to the stub."""
    return {
        "max_batch_size": 4,
        "model_transaction_policy": {"decoupled": decoupled},
        "dynamic_batching": {"default_queue_policy": {"max_queue_size": 7}},
        "parameters": {
            key: {"string_value": value}
            for key, value in {"gpt_model_path": str(engine), **parameters}.items()
        },
    }


def test_limits_come_from_both_files(engine: Path) -> None:
    settings = read_settings(
        model_config(
            engine,
            max_tokens_in_paged_kv_cache="4000",
            enable_chunked_context="true",
            enable_kv_cache_reuse="false",
            cancellation_check_period_ms="10",
            stats_check_period_ms="50",
            exclude_input_in_output="True",
            max_beam_width="4",
        )
    )
    limits = settings.engine.limits
    assert limits.pool_blocks == 125  # ceil(4000 / 32)
    assert limits.max_sequences == 16
    assert limits.max_num_tokens == 256
    assert limits.max_seq_len == 1024  # the GGUF's own context is the smallest
    assert limits.max_queue_size == 7
    assert limits.vocab_size == 259
    assert limits.max_beam_width == 4
    assert limits.chunked_context
    assert not limits.kv_reuse
    assert settings.cancellation_period_s == 0.01
    assert settings.engine.stats_period_s == 0.05
    assert settings.exclude_input
    assert settings.batched


def test_tensorrt_llms_defaults(engine: Path) -> None:
    settings = read_settings(model_config(engine))
    limits = settings.engine.limits
    assert limits.kv_reuse  # true from 0.19 on
    assert not limits.chunked_context
    assert limits.max_beam_width == 1
    assert limits.pool_blocks == 16 * 1024 // 32  # every sequence at its longest
    assert not settings.exclude_input
    assert settings.cancellation_period_s == 0.1


def test_a_small_pool_shortens_the_longest_sequence(engine: Path) -> None:
    limits = read_settings(model_config(engine, max_tokens_in_paged_kv_cache="320")).engine.limits
    assert limits.max_seq_len == 320


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"enable_kv_cache_reuse": "yes"}, "enable_kv_cache_reuse is 'yes'; true, false, 1 or 0"),
        ({"max_tokens_in_paged_kv_cache": "0,5"}, "max_tokens_in_paged_kv_cache is '0,5'"),
        ({"max_tokens_in_paged_kv_cache": "-1"}, "a positive whole number"),
        ({"max_attention_window_size": "512"}, "attends to the whole sequence of 1024 tokens"),
        ({"gpt_model_path": ""}, "gpt_model_path is missing"),
        ({"gpt_model_path": "/nowhere"}, "/nowhere holds no weights"),
    ],
)
def test_values_that_cannot_be_meant(engine: Path, parameters: dict[str, str], words: str) -> None:
    with pytest.raises(LoadRefused, match=words):
        read_settings(model_config(engine, **parameters))


def test_a_window_that_never_binds_is_taken(engine: Path) -> None:
    read_settings(model_config(engine, max_attention_window_size="1024,4096"))


def test_a_model_that_is_not_decoupled_is_refused(engine: Path) -> None:
    with pytest.raises(LoadRefused, match="decoupled: true"):
        read_settings(model_config(engine, decoupled=False))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_batch_size": "16"}, "build_config.max_batch_size is '16'"),
        ({"max_seq_len": None}, "build_config.max_seq_len is None"),
        (
            {"plugin_config": {"tokens_per_block": 64}},
            "tokens_per_block is 64; the CPU engine",
        ),
    ],
)
def test_a_build_config_that_cannot_be_served(
    engine: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    (tmp_path / "model.gguf").symlink_to(engine / "model.gguf")
    (tmp_path / "config.json").write_text(json.dumps({"build_config": {**BUILD, **change}}))
    with pytest.raises(LoadRefused, match=words):
        read_settings(model_config(tmp_path))
