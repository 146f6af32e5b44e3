"""The folders of one vision pipeline.

A pipeline of several networks has a front that takes encoded pictures and calls them; a single network stands
between a pre- and a post-processing model in an ensemble that takes encoded pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trtbuild.build.onnx_quantise import fit_parameters
from trtbuild.build.trtexec import PLAN_FILE
from trtbuild.catalog.versions import Container, Tensor
from trtbuild.catalog.vision import TensorRow, pipeline
from trtbuild.errors import RepositoryError
from trtbuild.plan.model import NetworkPlan, VisionPlan
from trtbuild.repository.contents import Content, Linked, ModelFolder, ModelUnit, Text
from trtbuild.repository.llm import own_tensors
from trtbuild.repository.render import model_code, render_config
from trtbuild.repository.vision_tensors import GEOMETRY, IMAGE, PROBLEM, answer_tensors, raw_outputs
from trtbuild.spec import Target, Task

_MODEL_FILE = "1/model.onnx"
# onnxruntime would keep a memory plan for each shape that ever came: twice the memory at the same speed.
_SHAPES_VARY = {"enable_mem_pattern": "0"}


# What vision networks share under Triton's rate limiter, which launch.sh turns on where there are several
# pipelines.
VISION_RESOURCE = "vision"


def vision_unit(
    plan: VisionPlan,
    *,
    target: Target,
    container: Container,
    weights: Mapping[str, Path],
    assets: Path | None = None,
) -> ModelUnit:
    """All folders of one vision pipeline.

    Args:
        container: what its server can do.
        weights: model name of each network → its ONNX file, or the folder with it and its external data. Only
            ``local`` insists on them: the repository of another machine may get them there.
        assets: folder whose files the front or the post-processing needs beside its code, such as labels.

    Raises:
        RepositoryError: if a file is missing.
    """
    origin = f"the plan of {plan.name} ({target.value})"
    if plan.picture is None:
        folders = [_front(plan, origin, assets)]
    else:
        folders = [_ensemble(plan, origin, target, container), *_stages(plan, origin, assets)]
    folders += [_network(network, origin, target, weights.get(network.model)) for network in plan.networks]
    return ModelUnit(plan.name, "vision", tuple(folders))


def _front(plan: VisionPlan, origin: str, assets: Path | None) -> ModelFolder:
    kind = f"vision_{plan.task.value}"
    inputs, outputs = own_tensors(kind)
    row, (stage,) = pipeline(plan.pipeline), plan.stages
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
        instances=stage.instances,
        parameters=parameters,
    )
    return ModelFolder(plan.name, config, _python_files(text, model_code(kind), assets))


def _python_files(config: str, code: Mapping[str, bytes], assets: Path | None = None) -> dict[str, Content]:
    files: dict[str, Content] = {"config.pbtxt": Text(config.encode())}
    files |= {f"1/{file}": Text(data) for file, data in code.items()}
    if assets is not None:
        found = sorted(path for path in assets.iterdir() if path.is_file())
        files |= {f"1/{path.name}": Text(path.read_bytes()) for path in found}
    return files


def _ensemble(plan: VisionPlan, origin: str, target: Target, container: Container) -> ModelFolder:
    network = plan.networks[0]
    raw = raw_outputs(plan)
    stages = {stage.role: stage.model for stage in plan.stages}
    steps = [
        {
            "model": stages["preprocess"],
            "inputs": {"image": "image"},
            "outputs": {"pixels": "pixels", "geometry": "geometry", "error": "preprocess_error"},
        },
        {
            "model": network.model,
            "inputs": {"pixels": "pixels"},
            "outputs": {row.name: f"raw_{i}" for i, row in enumerate(raw)},
        },
    ]
    outputs = answer_tensors(plan)
    if plan.task is Task.RAW:
        steps[0]["outputs"] = {"pixels": "pixels", "geometry": "geometry", "error": "error"}
        named = zip(raw, (row for row in outputs if row.name not in ("geometry", "error")), strict=True)
        steps[1]["outputs"] = {row.name: served.name for row, served in named}
        comment = "Encoded pictures in, the network's own outputs out: what they mean is not known."
    else:
        inputs = {f"raw_{i}": f"raw_{i}" for i in range(len(raw))}
        steps.append(
            {
                "model": stages["postprocess"],
                "inputs": {**inputs, "geometry": "geometry", "error": "preprocess_error"},
                "outputs": {row.name: row.name for row in outputs},
            }
        )
        comment = (
            f"Encoded pictures in, {plan.task.value} out; error: which picture of a batch failed, and why."
        )
    text, config = render_config(
        "vision_ensemble",
        name=plan.name,
        origin=origin,
        comment=comment,
        max_batch_size=plan.max_batch_size,
        inputs=(IMAGE,),
        outputs=outputs,
        steps=steps,
        max_inflight_requests=0 if target is Target.LOCAL else _inflight(plan, container),
        parameters={"task": plan.task.value, "max_picture_pixels": str(plan.max_picture_pixels)},
    )
    files: dict[str, Content] = {"config.pbtxt": Text(text.encode()), "1/.gitkeep": Text(b"")}
    return ModelFolder(plan.name, config, files)


def _inflight(plan: VisionPlan, container: Container) -> int:
    """Pictures between decoding and the network, where the server can bound them: those that run and one
    batch that waits for each instance."""
    if "max_inflight_requests" not in container.features:
        return 0
    return 2 * sum(network.instances * network.max_batch_size for network in plan.networks)


def _stages(plan: VisionPlan, origin: str, assets: Path | None) -> list[ModelFolder]:
    picture, answer = plan.picture, plan.answer
    assert picture is not None
    assert answer is not None
    pixels = plan.networks[0].inputs
    before = {**fit_parameters(picture), "max_picture_pixels": str(plan.max_picture_pixels)}
    after = {
        "task": plan.task.value,
        "head": answer.head,
        "classes": str(answer.classes),
        "activation": answer.activation,
        "width": str(picture.width),
        "height": str(picture.height),
        "top_k": str(answer.top_k),
        "score_threshold": str(answer.score_threshold),
        "iou_threshold": str(answer.iou_threshold),
        "max_detections": str(answer.max_detections),
        "normalise": str(answer.normalise).lower(),
        "anchors": ",".join(map(str, answer.anchors)),
    }
    raw = tuple(
        Tensor(name=f"raw_{i}", dtype=row.dtype, dims=row.dims) for i, row in enumerate(raw_outputs(plan))
    )
    picture_file = {"picture.py": model_code("vision_ocr")["picture.py"]}
    folders = []
    inputs: tuple[Tensor, ...]
    for stage in plan.stages:
        kind = f"vision_{stage.role}"
        if stage.role == "preprocess":
            inputs, outputs = (IMAGE,), (*_tensors(pixels), GEOMETRY, PROBLEM)
            code, parameters, comment = (
                {**model_code(kind), **picture_file},
                before,
                "Encoded pictures to pixels.",
            )
        else:
            inputs, outputs = (*raw, GEOMETRY, PROBLEM), answer_tensors(plan)
            code, parameters = model_code(kind), after
            comment = (
                f"The network's outputs ({', '.join(row.name for row in raw_outputs(plan))}) to answers."
            )
        text, config = render_config(
            "vision_stage",
            name=stage.model,
            origin=origin,
            comment=comment,
            max_batch_size=stage.max_batch_size,
            batched=stage.role == "postprocess",
            inputs=inputs,
            outputs=outputs,
            instances=stage.instances,
            parameters=parameters,
        )
        files = _python_files(text, code, assets if stage.role == "postprocess" else None)
        folders.append(ModelFolder(stage.model, config, files))
    return folders


def _network(network: NetworkPlan, origin: str, target: Target, weights: Path | None) -> ModelFolder:
    compiled = network.runtime == "tensorrt" and target is not Target.LOCAL
    parameters: dict[str, str] = {} if compiled else dict(_SHAPES_VARY)
    if not compiled and target is not Target.LOCAL:
        parameters |= cuda_parameters(network)
    text, config = render_config(
        "vision_network",
        name=network.model,
        origin=origin,
        backend="tensorrt" if compiled else "onnxruntime",
        model_file=PLAN_FILE if compiled else "",
        max_batch_size=network.max_batch_size,
        preferred_batch_sizes=network.preferred_batch_sizes,
        max_queue_delay_us=network.max_queue_delay_us,
        inputs=_tensors(network.inputs),
        outputs=_tensors(network.outputs),
        instances=network.instances,
        kind="KIND_CPU" if target is Target.LOCAL else "KIND_GPU",
        resource="" if target is Target.LOCAL else VISION_RESOURCE,
        half=network.precision == "fp16" and target is not Target.LOCAL,
        workspace_bytes=network.workspace_bytes,
        parameters=parameters,
    )
    files: dict[str, Content] = {"config.pbtxt": Text(text.encode())}
    if weights is not None and weights.is_dir():
        found = sorted(path for path in weights.rglob("*") if path.is_file())
        files |= {f"1/{path.relative_to(weights).as_posix()}": Linked(path) for path in found}
    elif weights is not None:
        files[_MODEL_FILE] = Linked(weights)
    elif target is Target.LOCAL:
        raise RepositoryError(f"the ONNX file of {network.model} is missing")
    else:
        files["1/.gitkeep"] = Text(b"")
    return ModelFolder(network.model, config, files, (f"1/{PLAN_FILE}",) if compiled else ())


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
