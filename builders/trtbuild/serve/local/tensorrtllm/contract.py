"""The inputs, outputs and parameters of NVIDIA's ``tensorrt_llm`` model, and what becomes of each here.

Names, types and dims: TensorRT-LLM 1.2.1, inflight_batcher_llm/tensorrt_llm/config.pbtxt (that of
tensorrtllm_backend r25.05 and the two token-count inputs and outputs). Nothing falls through: an input or
parameter is honoured, has no effect on a CPU, or is refused unless its value is neutral.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jobs import UNSUPPORTED, RequestRefused
from .limits import LoadRefused

Neutral = Callable[[NDArray[Any]], bool]


def _empty(value: NDArray[Any]) -> bool:
    return value.size == 0


def _false(value: NDArray[Any]) -> bool:
    return not value.any()


def _no_words(value: NDArray[Any]) -> bool:
    """Ids and offsets of no word: all offsets are padding (preprocessing sends -1)."""
    return value.size == 0 or bool((value.reshape(-1, 2, value.shape[-1])[:, 1] < 0).all())


def _equal(number: float) -> Neutral:
    return lambda value: value.size == 0 or bool(np.isclose(value.astype(np.float64), number).all())


@dataclass(frozen=True)
class Input:
    """``neutral``: None where the input is honoured, else the test for values that change nothing.
    ``why``: the reason of the refusal, with what would work."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    required: bool = False
    neutral: Neutral | None = None
    why: str = ""

    def check(self, value: NDArray[Any]) -> None:
        """Raises RequestRefused for a value that cannot be honoured."""
        if self.neutral is not None and not self.neutral(value):
            raise RequestRefused(f"{self.name} cannot be honoured by the CPU engine: {self.why}{UNSUPPORTED}")


_DECODER_ONLY = "it serves decoder-only models; leave it out"
_NO_DRAFT = "it has no speculative decoding; leave it out, the text is the same without"
_NO_LOGIT_EDIT = "it has no hook on the logits for this; leave it out, or use the engine target"
_NO_LOGITS = "it gives the chosen token's log probability only (return_log_probs), not logits"
_NO_LORA = "it serves the base weights; merge the adapter into the checkpoint, or use the engine target"
_NO_PROMPT_TABLE = "it takes token ids only, no prompt embeddings"
_NO_RETENTION = "it evicts reusable blocks least recently used first, without priorities; leave it out"
_NO_MROPE = "it has no multimodal rotary positions"
_NO_TOP_P_CHANGE = "its top-p is the same for every token; leave it out"

INPUTS: tuple[Input, ...] = (
    Input("input_ids", "INT32", (-1,)),
    Input("encoder_input_features", "FP16", (-1, -1), neutral=_empty, why=_DECODER_ONLY),
    Input("encoder_output_lengths", "INT32", (1,), neutral=_false, why=_DECODER_ONLY),
    Input("input_lengths", "INT32", (1,), required=True),
    Input("request_output_len", "INT32", (1,), required=True),
    Input("num_return_sequences", "INT32", (1,)),
    Input("draft_input_ids", "INT32", (-1,), neutral=_empty, why=_NO_DRAFT),
    Input("decoder_input_ids", "INT32", (-1,), neutral=_empty, why=_DECODER_ONLY),
    Input("decoder_input_lengths", "INT32", (1,), neutral=_false, why=_DECODER_ONLY),
    Input("draft_logits", "FP32", (-1, -1), neutral=_empty, why=_NO_DRAFT),
    Input("draft_acceptance_threshold", "FP32", (1,), neutral=_false, why=_NO_DRAFT),
    Input("end_id", "INT32", (1,)),
    Input("pad_id", "INT32", (1,)),  # no effect: NVIDIA's backend pads outputs with -1 too
    Input("stop_words_list", "INT32", (2, -1)),
    Input("bad_words_list", "INT32", (2, -1), neutral=_no_words, why=_NO_LOGIT_EDIT),
    Input("embedding_bias", "FP32", (-1,), neutral=_false, why=_NO_LOGIT_EDIT),
    Input("beam_width", "INT32", (1,)),
    Input("temperature", "FP32", (1,)),
    Input("runtime_top_k", "INT32", (1,)),
    Input("runtime_top_p", "FP32", (1,)),
    Input("runtime_top_p_min", "FP32", (1,), neutral=_equal(1e-6), why=_NO_TOP_P_CHANGE),
    Input("runtime_top_p_decay", "FP32", (1,), neutral=_equal(1.0), why=_NO_TOP_P_CHANGE),
    Input("runtime_top_p_reset_ids", "INT32", (1,), neutral=_equal(-1), why=_NO_TOP_P_CHANGE),
    Input("len_penalty", "FP32", (1,)),
    Input("early_stopping", "BOOL", (1,)),
    Input("repetition_penalty", "FP32", (1,)),
    Input("min_tokens", "INT32", (1,)),
    Input(
        "beam_search_diversity_rate", "FP32", (1,), neutral=_false,
        why="its beams are not grouped; use 0",
    ),
    Input("presence_penalty", "FP32", (1,)),
    Input("frequency_penalty", "FP32", (1,)),
    Input("seed", "UINT64", (1,)),
    Input("return_log_probs", "BOOL", (1,)),
    Input("return_context_logits", "BOOL", (1,), neutral=_false, why=_NO_LOGITS),
    Input("return_generation_logits", "BOOL", (1,), neutral=_false, why=_NO_LOGITS),
    Input("return_perf_metrics", "BOOL", (1,)),
    Input("return_num_input_tokens", "BOOL", (1,)),
    Input("return_num_output_tokens", "BOOL", (1,)),
    Input("exclude_input_in_output", "BOOL", (1,)),
    Input("stop", "BOOL", (1,)),
    Input("streaming", "BOOL", (1,)),
    Input("prompt_embedding_table", "FP16", (-1, -1), neutral=_empty, why=_NO_PROMPT_TABLE),
    Input("prompt_table_extra_ids", "UINT64", (-1,), neutral=_false, why=_NO_PROMPT_TABLE),
    Input("prompt_vocab_size", "INT32", (1,), neutral=_false, why=_NO_PROMPT_TABLE),
    Input("cross_attention_mask", "BOOL", (-1, -1), neutral=_empty, why=_DECODER_ONLY),
    Input("mrope_rotary_cos_sin", "FP32", (-1,), neutral=_empty, why=_NO_MROPE),
    Input("mrope_position_deltas", "INT64", (1,), neutral=_false, why=_NO_MROPE),
    Input("lora_task_id", "UINT64", (1,), neutral=_false, why=_NO_LORA),
    Input("lora_weights", "FP16", (-1, -1), neutral=_empty, why=_NO_LORA),
    Input("lora_config", "INT32", (-1, 3), neutral=_empty, why=_NO_LORA),
    Input(
        "context_phase_params", "UINT8", (-1,), neutral=_empty,
        why="context and generation run in one engine here; leave it out",
    ),
    Input("skip_cross_attn_blocks", "BOOL", (1,), neutral=_false, why=_DECODER_ONLY),
    Input("retention_token_range_starts", "INT32", (-1,), neutral=_empty, why=_NO_RETENTION),
    Input("retention_token_range_ends", "INT32", (-1,), neutral=_empty, why=_NO_RETENTION),
    Input("retention_token_range_priorities", "INT32", (-1,), neutral=_empty, why=_NO_RETENTION),
    Input("retention_token_range_durations_ms", "INT32", (-1,), neutral=_empty, why=_NO_RETENTION),
    # 35 is the executor's kDefaultRetentionPriority (executor.h)
    Input("retention_decode_priority", "INT32", (1,), neutral=_equal(35), why=_NO_RETENTION),
    Input("retention_decode_duration_ms", "INT32", (1,), neutral=_false, why=_NO_RETENTION),
    Input("guided_decoding_guide_type", "STRING", (1,)),
    Input("guided_decoding_guide", "STRING", (1,)),
    Input("lookahead_window_size", "INT32", (1,), neutral=_false, why=_NO_DRAFT),
    Input("lookahead_ngram_size", "INT32", (1,), neutral=_false, why=_NO_DRAFT),
    Input("lookahead_verification_set_size", "INT32", (1,), neutral=_false, why=_NO_DRAFT),
)  # fmt: skip

INPUT_BY_NAME = {rule.name: rule for rule in INPUTS}

# What the engine gives. The others of NVIDIA's outputs are never sent, as NVIDIA's backend leaves out what
# was not computed.
OUTPUTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "output_ids": ("INT32", (-1, -1)),
    "sequence_length": ("INT32", (-1,)),
    "cum_log_probs": ("FP32", (-1,)),
    "output_log_probs": ("FP32", (-1, -1)),
    "batch_index": ("INT32", (1,)),
    "sequence_index": ("INT32", (1,)),
    "arrival_time_ns": ("INT64", (1,)),
    "first_scheduled_time_ns": ("INT64", (1,)),
    "first_token_time_ns": ("INT64", (1,)),
    "last_token_time_ns": ("INT64", (1,)),
    "num_input_tokens": ("INT32", (1,)),
    "num_output_tokens": ("INT32", (1,)),
}
OUTPUTS_NOT_GIVEN: dict[str, tuple[str, tuple[int, ...]]] = {
    "context_logits": ("FP32", (-1, -1)),
    "generation_logits": ("FP32", (-1, -1, -1)),
    "context_phase_params": ("UINT8", (-1,)),
    "kv_cache_alloc_new_blocks": ("INT32", (1,)),
    "kv_cache_reused_blocks": ("INT32", (1,)),
    "kv_cache_alloc_total_blocks": ("INT32", (1,)),
    "acceptance_rate": ("FP32", (1,)),
    "total_accepted_draft_tokens": ("INT32", (1,)),
    "total_draft_tokens": ("INT32", (1,)),
}


@dataclass(frozen=True)
class Parameter:
    """A ``parameters`` entry of config.pbtxt.

    ``allowed``: None where any value is taken (read by ``read_limits``, or without meaning on a CPU), else
    the values that change nothing. ``why``: what to do instead.
    """

    key: str
    allowed: tuple[str, ...] | None = None
    why: str = ""

    def check(self, value: str) -> None:
        """Raises LoadRefused for a value that cannot be honoured."""
        if self.allowed is not None and value.strip().lower() not in self.allowed:
            raise LoadRefused(
                f"parameter {self.key} is {value!r}, which the CPU engine cannot honour: {self.why}"
            )


_NO_SPECULATION = "it has no speculative decoding; leave it empty"
_UNSET = ("",)
_OFF = ("", "false", "0")
_ON = ("", "true", "1")

PARAMETERS: tuple[Parameter, ...] = (
    # honoured
    Parameter("max_beam_width"),
    Parameter(
        "gpt_model_type", ("inflight_fused_batching", "inflight_batching"),
        "it batches in flight only; use inflight_fused_batching",
    ),
    Parameter("gpt_model_path"),
    Parameter("max_tokens_in_paged_kv_cache"),
    Parameter(
        "batch_scheduler_policy", ("", "guaranteed_no_evict"),
        "it admits what is sure to fit; use guaranteed_no_evict",
    ),
    Parameter("exclude_input_in_output"),
    Parameter("cancellation_check_period_ms"),
    Parameter("stats_check_period_ms"),
    Parameter("enable_kv_cache_reuse"),
    Parameter("enable_chunked_context"),
    Parameter("max_attention_window_size"),
    Parameter(
        "decoding_mode", ("", "auto", "top_k", "top_p", "top_k_top_p", "beam_search"), "leave it empty"
    ),
    Parameter("guided_decoding_backend", ("", "xgrammar"), "its grammar engine is xgrammar"),
    # no meaning on a CPU, or none that a client could see
    Parameter("FORCE_CPU_ONLY_INPUT_TENSORS"),
    Parameter("kv_cache_free_gpu_mem_fraction"),  # an upper bound on GPU memory; the token cap binds
    Parameter("cross_kv_cache_fraction"),
    Parameter("kv_cache_onboard_blocks"),
    Parameter("iter_stats_max_iterations"),
    Parameter("request_stats_max_iterations"),
    Parameter("gpu_device_ids"),
    Parameter("executor_worker_path"),
    Parameter("enable_context_fmha_fp32_acc"),
    Parameter("multi_block_mode"),
    Parameter("cuda_graph_mode"),
    Parameter("cuda_graph_cache_size"),
    Parameter("enable_trt_overlap"),
    Parameter("recv_poll_period_ms"),
    Parameter("lora_cache_optimal_adapter_size"),
    Parameter("lora_cache_max_adapter_size"),
    Parameter("lora_cache_gpu_memory_fraction"),
    Parameter("lora_cache_host_memory_bytes"),
    Parameter("tokenizer_dir"),  # the engine's own tokenizer knows the grammar's vocabulary
    Parameter("xgrammar_tokenizer_info_path"),
    Parameter("unsupported_inputs"),  # not NVIDIA's: tells clients what is refused here
    # refused unless neutral
    Parameter("encoder_model_path", _UNSET, "it serves decoder-only models; leave it empty"),
    Parameter("sink_token_length", (*_UNSET, "0"), "it keeps the whole context; leave it empty"),
    Parameter("kv_cache_host_memory_bytes", (*_UNSET, "0"), "its pool is host memory already; use 0"),
    Parameter("normalize_log_probs", _ON, "its log probabilities are normalised; use true"),
    Parameter("participant_ids", _UNSET, "it runs in one process on one machine; leave it empty"),
    Parameter("num_nodes", (*_UNSET, "1"), "it runs on one machine; use 1"),
    Parameter("lora_prefetch_dir", _UNSET, "it serves the base weights; leave it empty"),
    Parameter("lookahead_window_size", (*_UNSET, "0"), _NO_SPECULATION),
    Parameter("lookahead_ngram_size", (*_UNSET, "0"), _NO_SPECULATION),
    Parameter("lookahead_verification_set_size", (*_UNSET, "0"), _NO_SPECULATION),
    Parameter("medusa_choices", _UNSET, _NO_SPECULATION),
    Parameter("eagle_choices", _UNSET, _NO_SPECULATION),
    Parameter("gpu_weights_percent", (*_UNSET, "1", "1.0"), "its weights are in host memory; use 1.0"),
    Parameter("speculative_decoding_fast_logits", _OFF, "it has no speculative decoding; use false"),
)  # fmt: skip

PARAMETER_BY_KEY = {rule.key: rule for rule in PARAMETERS}
