"""The folders of one vision pipeline: a front that takes encoded pictures, and the networks behind it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trtbuild.catalog.versions import Tensor
from trtbuild.catalog.vision import TensorRow, pipeline
from trtbuild.errors import RepositoryError
from trtbuild.plan.model import NetworkPlan, VisionPlan
from trtbuild.repository.contents import Content, Linked, ModelFolder, ModelUnit, Text
from trtbuild.repository.llm import own_tensors
from trtbuild.repository.render import model_code, render_config
from trtbuild.spec import Target

_MODEL_FILE = "1/model.onnx"
# onnxruntime would keep a memory plan for each shape that ever came: twice the memory at the same speed.
_SHAPES_VARY = {"enable_mem_pattern": "0"}


def vision_unit(
    plan: VisionPlan, *, target: Target, weights: Mapping[str, Path], assets: Path | None = None
) -> ModelUnit:
    """All folders of one vision pipeline.

    Args:
        weights: model name of each network → its ONNX file. Only ``local`` insists on them: the repository of
            another machine gets them there.
        assets: folder whose files the front needs beside its code, such as the recogniser's alphabet.

    Raises:
        RepositoryError: if a file is missing.
    """
    origin = f"the plan of {plan.name} ({target.value})"
    folders = [_front(plan, origin, assets)]
    folders += [
        _network(plan, network, origin, target, weights.get(network.model)) for network in plan.networks
    ]
    return ModelUnit(plan.name, "vision", tuple(folders))


def _front(plan: VisionPlan, origin: str, assets: Path | None) -> ModelFolder:
    kind = f"vision_{plan.pipeline}"
    inputs, outputs = own_tensors(kind)
    row = pipeline(plan.pipeline)
    parameters = {"max_picture_pixels": str(plan.max_picture_pixels), **row.front.parameters}
    for network in plan.networks:
        entry = row.network(network.role)
        parameters[f"{network.role}_model"] = network.model
        parameters[f"{network.role}_input"] = entry.inputs[0].name
        parameters[f"{network.role}_outputs"] = ",".join(entry.read_outputs)
        parameters[f"{network.role}_max_batch_size"] = str(network.max_batch_size)
    text, config = render_config(
        kind,
        name=plan.name,
        origin=origin,
        inputs=inputs,
        outputs=outputs,
        instances=plan.instances,
        parameters=parameters,
    )
    files: dict[str, Content] = {"config.pbtxt": Text(text.encode())}
    files |= {f"1/{file}": Text(data) for file, data in model_code(kind).items()}
    if assets is not None:
        found = sorted(path for path in assets.iterdir() if path.is_file())
        files |= {f"1/{path.name}": Text(path.read_bytes()) for path in found}
    return ModelFolder(plan.name, config, files)


def _network(
    plan: VisionPlan, network: NetworkPlan, origin: str, target: Target, weights: Path | None
) -> ModelFolder:
    row = pipeline(plan.pipeline).network(network.role)
    text, config = render_config(
        "vision_network",
        name=network.model,
        origin=origin,
        max_batch_size=network.max_batch_size,
        preferred_batch_sizes=network.preferred_batch_sizes,
        max_queue_delay_us=network.max_queue_delay_us,
        inputs=_tensors(row.inputs),
        outputs=_tensors(row.outputs),
        instances=network.instances,
        kind="KIND_CPU" if target is Target.LOCAL else "KIND_GPU",
        parameters=_SHAPES_VARY if target is Target.LOCAL else {**_SHAPES_VARY, **cuda_parameters(network)},
    )
    files: dict[str, Content] = {"config.pbtxt": Text(text.encode())}
    if weights is not None:
        files[_MODEL_FILE] = Linked(weights)
        return ModelFolder(network.model, config, files)
    if target is Target.LOCAL:
        raise RepositoryError(f"the ONNX file of {network.model} is missing")
    files["1/.gitkeep"] = Text(b"")
    return ModelFolder(network.model, config, files)


def cuda_parameters(network: NetworkPlan) -> dict[str, str]:
    """What keeps onnxruntime inside its share of the GPU (onnxruntime_backend README, "CUDA").

    Without a limit its arena grows by powers of two and never shrinks.
    """
    return {
        "gpu_mem_limit": str(network.weights_bytes + network.workspace_bytes),  # of one instance
        "arena_extend_strategy": "1",  # kSameAsRequested
        "cudnn_conv_algo_search": "1",  # HEURISTIC: the default times every algorithm for each size
    }


def _tensors(rows: tuple[TensorRow, ...]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name=row.name, dtype=row.dtype, dims=row.dims) for row in rows)
