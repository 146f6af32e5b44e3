"""Walks NVIDIA's whole engine interface: each input and parameter is honoured, without effect, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trtbuild.serve.local.tensorrtllm import contract
from trtbuild.serve.local.tensorrtllm.config import Parameters
from trtbuild.serve.local.tensorrtllm.jobs import RequestRefused
from trtbuild.serve.local.tensorrtllm.limits import LoadRefused

# Facts extracted from NVIDIA's own template, with its commit.
FACTS = json.loads((Path(__file__).parents[1] / "golden" / "nvidia" / "1.2.0.json").read_text())
ENGINE = FACTS["models"]["tensorrt_llm"]

REFUSED_INPUTS = {rule.name for rule in contract.INPUTS if rule.neutral is not None}
HONOURED_INPUTS = {rule.name for rule in contract.INPUTS if rule.neutral is None}

# For each refused input: values that change nothing, and values that would.
INPUT_VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "encoder_input_features": ([np.zeros((1, 0, 0))], [np.zeros((1, 2, 4))]),
    "encoder_output_lengths": ([[0]], [[4]]),
    "draft_input_ids": ([np.zeros((1, 0))], [[[5, 6]]]),
    "decoder_input_ids": ([np.zeros((1, 0))], [[[0]]]),
    "decoder_input_lengths": ([[0]], [[1]]),
    "draft_logits": ([np.zeros((1, 0, 0))], [np.zeros((1, 2, 9))]),
    "draft_acceptance_threshold": ([[0.0]], [[0.5]]),
    # ids and offsets: none; one empty word as preprocessing pads it; and the word 5
    "bad_words_list": ([np.zeros((1, 2, 0)), [[[0], [-1]]]], [[[[5], [1]]]]),
    "embedding_bias": ([np.zeros((1, 0)), np.zeros((1, 9))], [[[0.0, 0.0, 5.0]]]),
    "runtime_top_p_min": ([[1e-6]], [[0.5]]),
    "runtime_top_p_decay": ([[1.0]], [[0.5]]),
    "runtime_top_p_reset_ids": ([[-1]], [[7]]),
    "beam_search_diversity_rate": ([[0.0]], [[0.5]]),
    "return_context_logits": ([[False]], [[True]]),
    "return_generation_logits": ([[False]], [[True]]),
    "prompt_embedding_table": ([np.zeros((1, 0, 0))], [np.zeros((1, 4, 8))]),
    "prompt_table_extra_ids": ([np.zeros((1, 0)), [[0, 0]]], [[[0, 3]]]),
    "prompt_vocab_size": ([[0]], [[8]]),
    "cross_attention_mask": ([np.zeros((1, 0, 0))], [np.zeros((1, 2, 2))]),
    "mrope_rotary_cos_sin": ([np.zeros((1, 0))], [np.zeros((1, 8))]),
    "mrope_position_deltas": ([[0]], [[3]]),
    "lora_task_id": ([[0]], [[1]]),
    "lora_weights": ([np.zeros((1, 0, 0))], [np.zeros((1, 2, 8))]),
    "lora_config": ([np.zeros((1, 0, 3))], [np.zeros((1, 2, 3))]),
    "context_phase_params": ([np.zeros((1, 0))], [[[1, 2]]]),
    "skip_cross_attn_blocks": ([[False]], [[True]]),
    "retention_token_range_starts": ([np.zeros((1, 0))], [[[0]]]),
    "retention_token_range_ends": ([np.zeros((1, 0))], [[[10]]]),
    "retention_token_range_priorities": ([np.zeros((1, 0))], [[[80]]]),
    "retention_token_range_durations_ms": ([np.zeros((1, 0))], [[[500]]]),
    "retention_decode_priority": ([[35]], [[80]]),
    "retention_decode_duration_ms": ([[0]], [[500]]),
    "lookahead_window_size": ([[0]], [[4]]),
    "lookahead_ngram_size": ([[0]], [[4]]),
    "lookahead_verification_set_size": ([[0]], [[4]]),
}

# For each restricted parameter: a value that is taken, and one that is refused.
PARAMETER_VALUES = {
    "gpt_model_type": ("inflight_fused_batching", "V1"),
    "batch_scheduler_policy": ("guaranteed_no_evict", "max_utilization"),
    "decoding_mode": ("top_k_top_p", "medusa"),
    "guided_decoding_backend": ("", "outlines"),
    "encoder_model_path": ("", "/engines/encoder"),
    "sink_token_length": ("", "4"),
    "kv_cache_host_memory_bytes": ("0", "1073741824"),
    "normalize_log_probs": ("True", "false"),
    "participant_ids": ("", "1,2"),
    "num_nodes": ("1", "2"),
    "lora_prefetch_dir": ("", "/loras"),
    "lookahead_window_size": ("", "4"),
    "lookahead_ngram_size": ("", "4"),
    "lookahead_verification_set_size": ("", "4"),
    "medusa_choices": ("", "{0}, {0, 1}"),
    "eagle_choices": ("", "mc_sim_7b_63"),
    "gpu_weights_percent": ("1.0", "0.5"),
    "speculative_decoding_fast_logits": ("false", "true"),
}


def _names(lines: list[str]) -> set[str]:
    return {line.split()[0] for line in lines}


def test_the_tables_name_what_nvidia_declares() -> None:
    assert set(contract.INPUT_BY_NAME) == _names(ENGINE["inputs"])
    assert {*contract.OUTPUTS, *contract.OUTPUTS_NOT_GIVEN} == _names(ENGINE["outputs"])
    # recv_poll_period_ms is documented and read by the C++ code, but not in the template
    # and unsupported_inputs is for clients to read
    ours = {"recv_poll_period_ms", "unsupported_inputs"}
    assert set(contract.PARAMETER_BY_KEY) == {*ENGINE["parameters"], *ours}


def test_types_and_dims_are_nvidias() -> None:
    for line in ENGINE["inputs"]:
        name, dtype, *rest = line.split()
        rule = contract.INPUT_BY_NAME[name]
        if not dtype.endswith("_data_type") and not dtype.startswith("logits"):  # filled per deployment
            assert rule.dtype == dtype, name
        assert " ".join(rest).startswith(str(list(rule.dims))), name
        assert rule.required == ("optional" not in rest), name


def test_every_refused_input_and_parameter_has_values_here() -> None:
    assert set(INPUT_VALUES) == REFUSED_INPUTS
    assert set(PARAMETER_VALUES) == {rule.key for rule in contract.PARAMETERS if rule.allowed is not None}


@pytest.mark.parametrize("name", sorted(REFUSED_INPUTS))
def test_neutral_values_pass_and_others_are_refused_with_a_reason(name: str) -> None:
    rule = contract.INPUT_BY_NAME[name]
    neutral, harmful = INPUT_VALUES[name]
    for value in neutral:
        rule.check(np.asarray(value))
    for value in harmful:
        with pytest.raises(RequestRefused, match=f"{name} cannot be honoured by the CPU engine: \\w+"):
            rule.check(np.asarray(value))


def _entry(value: str) -> dict[str, str]:
    return {"string_value": value}


@pytest.mark.parametrize("key", sorted(PARAMETER_VALUES))
def test_a_parameter_that_cannot_be_honoured_stops_the_load(key: str) -> None:
    taken, refused = PARAMETER_VALUES[key]
    Parameters({key: _entry(taken)})
    with pytest.raises(LoadRefused, match=f"parameter {key} is .*cannot honour"):
        Parameters({key: _entry(refused)})


def test_an_unknown_parameter_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(LoadRefused, match="did you mean enable_kv_cache_reuse"):
        Parameters({"enable_kv_cache_re_use": _entry("true")})


def test_a_placeholder_that_was_left_in_is_refused() -> None:
    with pytest.raises(LoadRefused, match="max_beam_width still is the placeholder"):
        Parameters({"max_beam_width": _entry("${max_beam_width}")})
