"""A repository with a text front over an engine without a model, for measuring the text path alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from trtbuild.repository.llm import own_tensors, text_package
from trtbuild.repository.render import model_code

_SCALAR = (1,)
_ENGINE_INPUTS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "input_ids": ("INT32", (-1,)),
    "input_lengths": ("INT32", _SCALAR),
    "request_output_len": ("INT32", _SCALAR),
    "end_id": ("INT32", _SCALAR),
    "pad_id": ("INT32", _SCALAR),
    "stop_words_list": ("INT32", (2, -1)),
    "bad_words_list": ("INT32", (2, -1)),
    "embedding_bias": ("FP32", (-1,)),
    "streaming": ("BOOL", _SCALAR),
    "temperature": ("FP32", _SCALAR),
    "runtime_top_k": ("INT32", _SCALAR),
    "runtime_top_p": ("FP32", _SCALAR),
    "min_tokens": ("INT32", _SCALAR),
    "beam_width": ("INT32", _SCALAR),
    "num_return_sequences": ("INT32", _SCALAR),
    "random_faults": ("UINT64", _SCALAR),
}


def write_instant_repository(
    repository: Path,
    tokenizer: Path,
    *,
    name: str = "m",
    step_ms: float = 0.0,
    parameters: Mapping[str, str] | None = None,
) -> None:
    """Writes the models ``name`` (the front) and ``name``_engine.

    Args:
        tokenizer: folder with a tokenizer.json and the files beside it.
        step_ms: time between two tokens of an answer.
        parameters: more parameters of the front. Its input ``seed`` reaches the engine as ``random_faults``.
    """
    values = {
        "engine_model": f"{name}_engine",
        "max_seq_len": "4096",
        "max_input_tokens": "2048",
        "max_output_tokens": "64",
        "seed_input": "random_faults",
        **(parameters or {}),
    }
    _write_front(repository / name, tokenizer, values)
    _write_engine(repository / f"{name}_engine", step_ms)


def _config(folder: Path, max_batch_size: int, parameters: Mapping[str, str]) -> model_config_pb2.ModelConfig:
    config = model_config_pb2.ModelConfig(name=folder.name, backend="python", max_batch_size=max_batch_size)
    config.model_transaction_policy.decoupled = True
    config.instance_group.add(count=1, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU)
    for key, value in parameters.items():
        config.parameters[key].string_value = value
    return config


def _write_front(folder: Path, tokenizer: Path, parameters: Mapping[str, str]) -> None:
    config = _config(folder, 64, parameters)
    config.dynamic_batching.SetInParent()
    inputs, outputs = own_tensors("llm_front")
    for side, rows in ((config.input, inputs), (config.output, outputs)):
        for row in rows:
            tensor = side.add(name=row.name, data_type=_data_type(row.dtype), dims=row.dims)
            if side is config.input:
                tensor.optional = bool(row.optional)
    files = dict(model_code("llm_front"))
    files |= {f"tritontext/{name}": data for name, data in text_package().items()}
    files |= {f"tokenizer/{path.name}": path.read_bytes() for path in tokenizer.iterdir() if path.is_file()}
    _write(folder, config, files)


def _write_engine(folder: Path, step_ms: float) -> None:
    config = _config(folder, 256, {"step_ms": f"{step_ms:g}"})
    config.dynamic_batching.SetInParent()
    for name, (dtype, dims) in _ENGINE_INPUTS.items():
        tensor = config.input.add(name=name, data_type=_data_type(dtype), dims=dims, optional=True)
        if dims == _SCALAR:
            tensor.reshape.SetInParent()
        tensor.allow_ragged_batch = -1 in dims
    config.output.add(name="output_ids", data_type=_data_type("INT32"), dims=(-1, -1))
    config.output.add(name="sequence_length", data_type=_data_type("INT32"), dims=(-1,))
    _write(folder, config, model_code("instant_engine"))


def _data_type(name: str) -> model_config_pb2.DataType.ValueType:
    return model_config_pb2.DataType.Value(f"TYPE_{name}")


def _write(folder: Path, config: model_config_pb2.ModelConfig, files: Mapping[str, bytes]) -> None:
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")
    for name, data in files.items():
        path = folder / "1" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
