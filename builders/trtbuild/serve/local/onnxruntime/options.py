"""Session options out of a model's configuration, as Triton's onnxruntime backend reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .graph import ConfigError

# Parameters of the CUDA execution provider: valid in a configuration, without meaning on a CPU.
_GPU_ONLY = (
    "cudnn_conv_algo_search",
    "gpu_mem_limit",
    "arena_extend_strategy",
    "do_copy_in_default_stream",
    "session.use_device_allocator_for_initializers",
)
# The CPU is shared with other models (an LLM's threads), from which spinning threads would take it.
_NO_SPINNING = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
_TRUE, _FALSE = ("1", "true", "on"), ("0", "false", "off")


def session_options(config: Mapping[str, Any]) -> Any:
    """``onnxruntime.SessionOptions`` for a model's configuration.

    Raises:
        ConfigError: for a value that Triton's own backend would refuse.
    """
    import onnxruntime

    parameters = _parameters(config)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    for key, value in _NO_SPINNING.items():
        options.add_session_config_entry(key, value)
    if (threads := _count(parameters, "intra_op_thread_count")) > 0:
        options.intra_op_num_threads = threads
    if (threads := _count(parameters, "inter_op_thread_count")) > 0:
        options.inter_op_num_threads = threads
    modes = onnxruntime.ExecutionMode
    options.execution_mode = (
        modes.ORT_PARALLEL if _flag(parameters, "execution_mode") else modes.ORT_SEQUENTIAL
    )
    options.enable_cpu_mem_arena = _flag(parameters, "enable_mem_arena", default=True)
    options.enable_mem_pattern = _flag(parameters, "enable_mem_pattern", default=True)
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = {
        -1: levels.ORT_ENABLE_BASIC,
        1: levels.ORT_ENABLE_EXTENDED,
        2: levels.ORT_DISABLE_ALL,
    }.get(_graph_level(config), levels.ORT_ENABLE_ALL)
    return options


def run_options(config: Mapping[str, Any]) -> Any:
    """``onnxruntime.RunOptions``, or None where the configuration asks for nothing."""
    import onnxruntime

    key = "memory.enable_memory_arena_shrinkage"
    if not (devices := _parameters(config).get(key)):
        return None
    options = onnxruntime.RunOptions()
    options.add_run_config_entry(key, devices)
    return options


def providers(config: Mapping[str, Any]) -> list[str]:
    """Execution providers for a CPU instance.

    Raises:
        ConfigError: for an accelerator that is unknown or not part of the installed onnxruntime.
    """
    import onnxruntime

    chosen = []
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    for entry in accelerators.get("cpu_execution_accelerator", []):
        if entry.get("name") != "openvino":
            raise ConfigError(
                f"unknown cpu_execution_accelerator {entry.get('name')!r}: openvino is the only one"
            )
        if "OpenVINOExecutionProvider" not in onnxruntime.get_available_providers():
            raise ConfigError(
                "cpu_execution_accelerator openvino: the installed onnxruntime is built without it; "
                "leave the accelerator out"
            )
        chosen.append("OpenVINOExecutionProvider")
    return [*chosen, "CPUExecutionProvider"]


def without_effect(config: Mapping[str, Any]) -> list[str]:
    """Names of settings that a CPU instance accepts and does not use."""
    parameters = _parameters(config)
    found = [name for name in _GPU_ONLY if name in parameters]
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    names = [entry.get("name", "") for entry in accelerators.get("gpu_execution_accelerator", [])]
    return found + [f"gpu_execution_accelerator {name}" for name in names]


def refuse_unsupported(config: Mapping[str, Any], kind: str) -> None:
    """Refuses what Triton's own backend can do and this one cannot.

    Args:
        kind: of the instance: CPU or GPU.

    Raises:
        ConfigError: naming the setting.
    """
    if kind == "GPU":
        raise ConfigError("instance kind KIND_GPU: the local runtime has no GPU; use KIND_CPU")
    for key in ("sequence_batching", "batch_input", "batch_output"):
        if config.get(key):
            raise ConfigError(f"{key} is not supported by the local onnxruntime backend")
    if config.get("model_operations", {}).get("op_library_filename"):
        raise ConfigError("custom operator libraries are not loaded by the local onnxruntime backend")
    for entry in config.get("input", []):
        if entry.get("allow_ragged_batch"):
            raise ConfigError(
                f"input {entry['name']}: allow_ragged_batch is not supported by the local onnxruntime backend"
            )


def _parameters(config: Mapping[str, Any]) -> dict[str, str]:
    return {key: value.get("string_value", "") for key, value in config.get("parameters", {}).items()}


def _count(parameters: Mapping[str, str], name: str) -> int:
    text = parameters.get(name, "0")
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"parameter {name} is {text!r}, which is no number") from None


def _flag(parameters: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    text = parameters.get(name)
    if text is None:
        return default
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ConfigError(f"parameter {name} is {text!r}: 0 or 1 is expected")
    return text.lower() in _TRUE


def _graph_level(config: Mapping[str, Any]) -> int:
    return int(config.get("optimization", {}).get("graph", {}).get("level", 0))
