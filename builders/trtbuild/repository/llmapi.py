"""The engine's folder for the target ``llmapi``: a Python model, and the arguments of the LLM it runs."""

from __future__ import annotations

import json
from typing import Any

from trtbuild.catalog.versions import version_key
from trtbuild.errors import RepositoryError
from trtbuild.plan.model import LlmPlan
from trtbuild.repository.engine import boolean, device_groups

CHECKPOINT = "checkpoint"  # folder beside model.yaml that the LLM loads; the build script brings it
# Asking whether a request was cancelled costs 77 us: 64 streams, 20 times a second, are a tenth of a core.
CANCELLATION_CHECK_PERIOD_MS = 50
# KvCacheConfig.max_gpu_total_bytes: in the API reference of 1.1.0, not in that of 1.0.0 (pull request 5933).
_KV_BYTES_SINCE = "1.1.0"


def llm_arguments(llm: LlmPlan, version: str) -> dict[str, Any]:
    """Keywords of ``tensorrt_llm.llmapi.LLM``; it refuses any that it does not know.

    The KV pool is capped in tokens and, where the version can, in bytes; the fraction never binds first.

    Raises:
        RepositoryError: for a KV type that the PyTorch flow does not have.
    """
    kv_cache: dict[str, Any] = {
        "enable_block_reuse": llm.kv_reuse,
        "max_tokens": llm.kv_tokens,
        "free_gpu_memory_fraction": llm.kv_free_fraction,
    }
    if version_key(version) >= version_key(_KV_BYTES_SINCE):
        kv_cache["max_gpu_total_bytes"] = llm.kv_bytes
    if llm.kv_dtype == "fp8":
        kv_cache["dtype"] = "fp8"
    elif llm.kv_dtype == "int8":
        raise RepositoryError(
            "the LLM API has no 8-bit integer KV cache", "--kv-dtype fp8 or auto, or --target engine"
        )
    return {
        "model": CHECKPOINT,
        "backend": "pytorch",
        "tensor_parallel_size": llm.tp,
        "dtype": llm.dtype,
        "max_batch_size": llm.max_batch_size,
        "max_num_tokens": llm.max_num_tokens,
        "max_seq_len": llm.max_seq_len,
        "max_input_len": llm.max_input_tokens,
        "max_beam_width": 1,
        "enable_chunked_prefill": llm.chunked_context,
        "guided_decoding_backend": "xgrammar",
        "trust_remote_code": False,
        "kv_cache_config": kv_cache,
    }


def model_yaml(llm: LlmPlan, version: str) -> bytes:
    """``model.yaml``: written as JSON, which every YAML reader takes and the standard library, too."""
    return (json.dumps(llm_arguments(llm, version), indent=2) + "\n").encode()


def llmapi_parameters(llm: LlmPlan) -> dict[str, str]:
    """Parameters of the model's config.pbtxt; its code says what they mean."""
    return {
        "gpu_device_ids": device_groups(llm),
        "cancellation_check_period_ms": str(CANCELLATION_CHECK_PERIOD_MS),
        "exclude_input_in_output": boolean(True),
        "max_queue_size": str(llm.max_queue_size),
    }
