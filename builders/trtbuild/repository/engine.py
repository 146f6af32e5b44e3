"""The engine's parameters in config.pbtxt, from the plan: every key that a version has, none unfilled."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any

from trtbuild.build.commands import TOKENIZER_INFO
from trtbuild.catalog.versions import Container, Interface, interface
from trtbuild.errors import RepositoryError
from trtbuild.plan.model import LlmPlan

# The thread that looks for cancelled requests sleeps this long; NVIDIA's 100 is many steps of an engine.
CANCELLATION_CHECK_PERIOD_MS = 10
STATS_CHECK_PERIOD_MS = 100
# TensorRT-LLM's own defaults for the cache that an engine with LoRA adapters makes.
LORA_MAX_RANK = 64
LORA_GPU_FRACTION = 0.05  # of what is free after weights, buffers and the KV pool
LORA_HOST_BYTES = 1 << 30


def boolean(value: bool) -> str:
    """As the backend's parser takes it; anything else than these spellings is an error or read as false."""
    return "true" if value else "false"


def device_groups(llm: LlmPlan) -> str:
    """``gpu_device_ids``: "," between the GPUs of one instance, ";" between instances."""
    group = ",".join(str(rank) for rank in range(llm.tp))
    return ";".join([group] * llm.instances)


def fraction(value: float) -> str:
    """A fraction below 1 with four decimals, rounded up: rounded down it could bind before the token cap."""
    if not 0.0 < value < 1.0:
        raise RepositoryError(
            f"kv_cache_free_gpu_mem_fraction must lie between 0 and 1; the plan says {value}"
        )
    return f"{min(math.ceil(value * 10_000), 9_999) / 10_000:.4f}"


def engine_parameters(llm: LlmPlan, version: str, engine_path: str, worker_path: str) -> dict[str, str]:
    """Key → value for every parameter that the backend of ``version`` reads, in NVIDIA's order.

    A key without a value of its own stays empty, which the backend reads as "not given"
    (``inflight_batcher_llm/src/model_instance_state.cc``: an empty number or list does not parse, and the
    default is taken; ``cross_kv_cache_fraction`` must not be given to a decoder-only model).
    """
    values = {
        "max_beam_width": "1",
        "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": engine_path,
        "max_tokens_in_paged_kv_cache": str(llm.kv_tokens),
        "batch_scheduler_policy": "guaranteed_no_evict",
        "kv_cache_free_gpu_mem_fraction": fraction(llm.kv_free_fraction),
        "kv_cache_host_memory_bytes": "0",
        "kv_cache_onboard_blocks": boolean(True),
        "exclude_input_in_output": boolean(True),
        "cancellation_check_period_ms": str(CANCELLATION_CHECK_PERIOD_MS),
        "stats_check_period_ms": str(STATS_CHECK_PERIOD_MS),
        "iter_stats_max_iterations": "1000",
        "request_stats_max_iterations": "0",
        "enable_kv_cache_reuse": boolean(llm.kv_reuse),
        "normalize_log_probs": boolean(True),
        "enable_chunked_context": boolean(llm.chunked_context),
        "enable_trt_overlap": boolean(False),
        "gpu_device_ids": device_groups(llm),
        "num_nodes": "1",
        "lora_cache_optimal_adapter_size": "8",
        "lora_cache_max_adapter_size": str(LORA_MAX_RANK),
        "lora_cache_gpu_memory_fraction": str(LORA_GPU_FRACTION),
        "lora_cache_host_memory_bytes": str(LORA_HOST_BYTES),
        "decoding_mode": "top_k_top_p",
        "executor_worker_path": worker_path,
        "gpu_weights_percent": "1.0",
        "enable_context_fmha_fp32_acc": boolean(False),
        "multi_block_mode": boolean(True),
        "cuda_graph_mode": boolean(False),
        "cuda_graph_cache_size": "0",
        "speculative_decoding_fast_logits": boolean(False),
    }
    if llm.guided:  # the C++ backend reads no tokenizer; the build writes its description beside the engine
        values |= {
            "guided_decoding_backend": "xgrammar",
            "xgrammar_tokenizer_info_path": f"{engine_path}/{TOKENIZER_INFO}",
        }
    rows = interface(version, "tensorrt_llm").parameters
    return {row.name: values.get(row.name, "") for row in rows}


def refused_by_the_cpu_engine(inputs: Iterable[str]) -> str:
    """Those of an engine's inputs that the local one refuses, for clients to read, with commas between."""
    from trtbuild.serve.local.tensorrtllm.contract import INPUTS

    refused = {row.name for row in INPUTS if row.why}
    return ",".join(name for name in inputs if name in refused)


def engine_config(llm: LlmPlan, version: str) -> dict[str, Any]:
    """``config.json`` of an engine in TensorRT-LLM's shape: what a build with the plan's flags states."""
    return {
        "version": version,
        "pretrained_config": {
            "dtype": llm.dtype,
            "vocab_size": llm.vocab_size,
            "max_position_embeddings": llm.max_seq_len,
            "quantization": {"quant_algo": llm.quant, "kv_cache_quant_algo": llm.kv_dtype},
            "mapping": {"world_size": llm.tp, "tp_size": llm.tp, "pp_size": 1},
        },
        "build_config": {
            "max_batch_size": llm.max_batch_size,
            "max_num_tokens": llm.max_num_tokens,
            "max_seq_len": llm.max_seq_len,
            "max_input_len": llm.max_input_tokens,
            "max_beam_width": 1,
            "plugin_config": {
                "tokens_per_block": llm.tokens_per_block,
                "use_paged_context_fmha": llm.kv_reuse or llm.chunked_context,
            },
        },
    }


def engine_key(llm: LlmPlan, container: Container, sm: str | None) -> str:
    """Digest of everything in the plan that the bytes of a compiled engine depend on."""
    facts = {
        "source": llm.source,
        "weights": llm.weights_path,
        "quant": llm.quant,
        "trtllm": container.trtllm,
        "tensorrt": container.tensorrt,
        "sm": sm,
        "config": engine_config(llm, container.trtllm),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def checkpoint_key(llm: LlmPlan) -> str:
    """The same for what the LLM API loads: a checkpoint, which fits every GPU and limit."""
    facts = {"source": llm.source, "weights": llm.weights_path, "quant": llm.quant, "kv": llm.kv_dtype}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def input_name(engine: Interface, name: str, older: str) -> str:
    """What the engine of a version calls an input that was renamed."""
    return name if name in engine.input_names() else older
