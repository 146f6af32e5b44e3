"""The part of a tree that ensembles are checked by, as a ModelConfig: building it beats parsing it again."""

from __future__ import annotations

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from trtbuild.lint.model import ModelFolder


def model_config(model: ModelFolder) -> ModelConfig:
    """Name, batching, tensors, transaction policy and steps of a model whose config has no misfits."""
    config = ModelConfig(name=model.name, max_batch_size=model.number("max_batch_size"))
    config.model_transaction_policy.decoupled = model.decoupled
    for tensor in model.tensors("input"):
        config.input.add(
            name=tensor.name, data_type=_dtype(tensor.dtype), dims=tensor.dims, optional=tensor.optional
        )
    for tensor in model.tensors("output"):
        config.output.add(name=tensor.name, data_type=_dtype(tensor.dtype), dims=tensor.dims)
    scheduling = model.field("ensemble_scheduling")
    for step in scheduling.message.all("step") if scheduling is not None and scheduling.message else ():
        if step.message is None:
            continue
        name = step.message.get("model_name")
        added = config.ensemble_scheduling.step.add(model_name=name.text if name else "")
        for side, into in (("input_map", added.input_map), ("output_map", added.output_map)):
            for entry in step.message.all(side):
                key = entry.message.get("key") if entry.message else None
                value = entry.message.get("value") if entry.message else None
                if key is not None and value is not None:
                    into[key.text] = value.text
    return config


def _dtype(text: str) -> int:
    return int(text) if text.isdigit() else int(DataType.Value(text))
