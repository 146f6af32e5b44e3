"""The parameters of TensorRT-LLM's Triton models: what type each has, for all versions.

Source: tensorrtllm_backend inflight_batcher_llm/src/model_instance_state.cc at v0.19.0 and the templates of
all versions; values as in docs/model_config.md.
"""

from __future__ import annotations

BOOLEANS = frozenset(
    {
        "enable_trt_overlap", "exclude_input_in_output", "kv_cache_onboard_blocks", "enable_kv_cache_reuse",
        "normalize_log_probs", "enable_chunked_context", "enable_context_fmha_fp32_acc", "multi_block_mode",
        "cuda_graph_mode", "speculative_decoding_fast_logits",
    }
)  # fmt: skip

# Parameters of NVIDIA's Python models: `value.lower() in ("true", "yes", "1", "t", "y")`.
PYTHON_BOOLEANS = frozenset(
    {"add_special_tokens", "skip_special_tokens", "accumulate_tokens", "use_draft_logits"}
)

WHOLE_NUMBERS = frozenset(
    {
        "max_beam_width", "max_tokens_in_paged_kv_cache", "sink_token_length", "kv_cache_host_memory_bytes",
        "cancellation_check_period_ms", "stats_check_period_ms", "recv_poll_period_ms",
        "iter_stats_max_iterations",
        "request_stats_max_iterations", "num_nodes", "lora_cache_optimal_adapter_size",
        "lora_cache_max_adapter_size",
        "lora_cache_host_memory_bytes", "lookahead_window_size", "lookahead_ngram_size",
        "lookahead_verification_set_size", "cuda_graph_cache_size", "max_num_sequences",
        "max_kv_cache_length",
        "max_num_images", "num_draft_tokens",
    }
)  # fmt: skip

# Key → (lowest, highest), both included; below 1.0 where the backend refuses 1.0 itself.
FRACTIONS = {
    "kv_cache_free_gpu_mem_fraction": (0.0, 0.9999999),
    "cross_kv_cache_fraction": (0.0, 1.0),
    "lora_cache_gpu_memory_fraction": (0.0, 1.0),
    "gpu_weights_percent": (0.0, 1.0),
}

CHOICES = {
    "gpt_model_type": ("inflight_fused_batching", "inflight_batching", "V1", "v1"),
    "batch_scheduler_policy": ("guaranteed_no_evict", "max_utilization"),
    "guided_decoding_backend": ("xgrammar", "llguidance"),
    "decoding_mode": (
        "top_k", "top_p", "top_k_top_p", "beam_search", "medusa", "redrafter", "lookahead", "eagle",
        "explicit_draft_tokens", "auto",
    ),
}  # fmt: skip

# Read by some version or build, in no version's template.
FURTHER = frozenset(
    {"recv_poll_period_ms", "max_num_sequences", "max_kv_cache_length", "worker_path", "enable_trt_overlap",
     "max_num_tokens", "max_batch_size", "executor_worker_path", "kv_cache_event_buffer_max_size",
     "gather_all_token_logits", "max_queue_size"}
)  # fmt: skip
