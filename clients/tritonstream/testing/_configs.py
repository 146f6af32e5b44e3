"""Configs of the fake models, with the tensor names of the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..models import ModelKind

if TYPE_CHECKING:
    from ._models import FakeModel

# name:dtype:dims, "!" for a required input. Names from NVIDIA's templates (TensorRT-LLM 0.20 to 1.2.1).
_SAMPLING: Final = """
    temperature:FP32 repetition_penalty:FP32 min_tokens:INT32 presence_penalty:FP32 frequency_penalty:FP32
    seed:UINT64 return_log_probs:BOOL return_perf_metrics:BOOL beam_width:INT32 num_return_sequences:INT32
    exclude_input_in_output:BOOL end_id:INT32 pad_id:INT32 lora_task_id:UINT64
    guided_decoding_guide_type:STRING guided_decoding_guide:STRING
    return_num_input_tokens:BOOL return_num_output_tokens:BOOL
"""
_TEXT: Final = f"""
    text_input:STRING! max_tokens:INT32! stream:BOOL bad_words:STRING:-1 stop_words:STRING:-1 top_k:INT32
    top_p:FP32 length_penalty:FP32 embedding_bias_words:STRING:-1 embedding_bias_weights:FP32:-1 {_SAMPLING}
"""
_LLMAPI: Final = """
    text_input:STRING:-1! streaming:BOOL stop:BOOL return_finish_reason:BOOL return_stop_reason:BOOL
    return_cumulative_logprob:BOOL lora_id:UINT64 lora_name:STRING lora_path:STRING
    sampling_param_best_of:INT32 sampling_param_temperature:FP32 sampling_param_top_k:INT32
    sampling_param_top_p:FP32 sampling_param_frequency_penalty:FP32 sampling_param_presence_penalty:FP32
    sampling_param_max_tokens:INT32 sampling_param_stop:STRING:-1 sampling_param_seed:UINT64
    sampling_param_exclude_input_from_output:BOOL sampling_param_return_perf_metrics:BOOL
"""
_ENGINE: Final = f"""
    input_ids:INT32:-1! input_lengths:INT32! request_output_len:INT32! streaming:BOOL stop:BOOL
    runtime_top_k:INT32 runtime_top_p:FP32 len_penalty:FP32 stop_words_list:INT32:2,-1
    bad_words_list:INT32:2,-1 embedding_bias:FP32:-1 {_SAMPLING}
"""
_COUNTS: Final = "cum_log_probs:FP32:-1 output_log_probs:FP32:-1,-1 sequence_index:INT32 batch_index:INT32"
_INPUTS: Final = {
    ModelKind.FRONT: _TEXT.replace("!", "")
    + " messages:STRING tools:STRING timeout_ms:INT32 add_special_tokens:BOOL",
    ModelKind.ENSEMBLE: _TEXT,
    ModelKind.BLS: _TEXT,
    ModelKind.LLMAPI: _LLMAPI,
    ModelKind.ENGINE: _ENGINE,
    ModelKind.OCR: "image:STRING!",
}
_OUTPUTS: Final = {
    ModelKind.FRONT: "text_output:STRING token_ids:INT32:-1 finish_reason:STRING num_input_tokens:INT32 "
    "num_output_tokens:INT32 text_crc32:UINT32 " + _COUNTS,
    ModelKind.ENSEMBLE: "text_output:STRING:-1 " + _COUNTS,
    ModelKind.BLS: "text_output:STRING:-1 " + _COUNTS,
    ModelKind.LLMAPI: "text_output:STRING:-1 finish_reason:STRING:-1 stop_reason:STRING:-1 "
    "cumulative_logprob:FP32:-1",
    ModelKind.ENGINE: "output_ids:INT32:-1,-1 sequence_length:INT32:-1 " + _COUNTS,
    ModelKind.OCR: "text:STRING:-1 score:FP32:-1 box:FP32:-1,4,2",
}
_UNBATCHED: Final = (ModelKind.LLMAPI, ModelKind.OCR)


def config_of(name: str, model: FakeModel) -> Any:
    """Returns the ``ModelConfig`` message of a fake model."""
    from .._proto import model_config_pb2 as pb

    config = pb.ModelConfig(name=name, backend="python")
    config.max_batch_size = 0 if model.kind in _UNBATCHED else max(1, model.max_batch_size)
    inputs, outputs = model.tensors.get("inputs", ""), model.tensors.get("outputs", "")
    for spec in _INPUTS.get(model.kind, inputs).split():
        if spec.split(":")[0].rstrip("!") not in model.without:
            _add(config.input, spec, optional=not spec.endswith("!"))
    for spec in _OUTPUTS.get(model.kind, outputs).split():
        if spec.split(":")[0] not in model.without:
            _add(config.output, spec)
    config.model_transaction_policy.decoupled = model.decoupled
    for key, value in model.parameters.items():
        config.parameters[key].string_value = value
    if model.kind is ModelKind.ENSEMBLE:
        config.platform, config.backend = "ensemble", ""
        for step in model.steps:
            config.ensemble_scheduling.step.add(model_name=step, model_version=-1)
    else:
        config.instance_group.add(count=model.instances, kind=pb.ModelInstanceGroup.KIND_CPU)
    return config


def _add(into: Any, spec: str, **more: bool) -> None:
    from .._proto import model_config_pb2 as pb

    name, dtype, *rest = spec.rstrip("!").split(":")
    dims = [int(size) for size in rest[0].split(",")] if rest else [1]
    into.add(name=name, data_type=pb.DataType.Value(f"TYPE_{dtype.rstrip('!')}"), dims=dims, **more)
