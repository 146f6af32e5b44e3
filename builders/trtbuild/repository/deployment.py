"""Files that lie beside the models: what the repository is, how it is built and how it is launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trtbuild.build.commands import ASK_COMMIT, LORA_FILES, TOKENIZER_INFO
from trtbuild.build.jobs import Job, JobOptions, plan_job
from trtbuild.build.script import ScriptedModel, scripted_model
from trtbuild.build.trtexec import PLAN_FILE, PlanFile, plan_file
from trtbuild.catalog.versions import Container
from trtbuild.catalog.vision import pipeline
from trtbuild.plan.model import LlmPlan, Plan, VisionPlan
from trtbuild.plan.sources import name_of
from trtbuild.repository import launch
from trtbuild.repository.llm import TOKENIZER_FILES, own_tensors
from trtbuild.repository.names import LlmNames, NameScheme, llm_names
from trtbuild.repository.products import Products
from trtbuild.repository.render import render
from trtbuild.repository.vision_tensors import PROBLEM, answer_tensors
from trtbuild.server_options import RESTRICTED
from trtbuild.spec import DeploymentSpec, Target, Task

Named = list[tuple[LlmPlan, LlmNames]]

_METHODS = {  # of the client
    Task.CLASSIFICATION: "classify",
    Task.DETECTION: "detect",
    Task.SEGMENTATION: "segment",
    Task.EMBEDDING: "embed",
    Task.OCR: "ocr",
}


def deployment_files(
    plan: Plan, spec: DeploymentSpec, container: Container, scheme: NameScheme
) -> dict[str, str]:
    """File name → text.

    Raises:
        BuildError, CatalogError, ModelSourceError: no engine can be made of a model's weights.
    """
    llms = [(llm, llm_names(llm.name, scheme)) for llm in plan.llms]
    common = {"plan": plan, "container": container}
    builds = _builds(plan, spec, container, llms)
    visions = [(vision, _answer(vision), _METHODS.get(vision.task)) for vision in plan.visions]
    readme = render(
        "deployment/README.md.j2", llms=llms, visions=visions, builds=builds, scheme=scheme, **common
    )
    files = {"README.md": readme}
    if plan.target is not Target.LOCAL:
        files["Dockerfile"] = render("deployment/Dockerfile.j2", vision=_vision_backends(plan), **common)
        start = _start(plan, container, llms)
        files["launch.sh"] = render("deployment/launch.sh.j2", container=container, plan=plan, **start)
        files["compose.yaml"] = render("deployment/compose.yaml.j2", **start)
    plan_files = _plan_files(plan, container)
    if builds or plan_files:  # none for a repository of ONNX models alone
        script = render(
            "deployment/build_engines.sh.j2",
            builds=builds,
            plan_files=plan_files,
            tokenizer_files=TOKENIZER_FILES,
            lora_files=LORA_FILES,
            tokenizer_info=TOKENIZER_INFO,
            ask_commit=ASK_COMMIT,
            **common,
        )
        files["build_engines.sh"] = script
    return files


def _answer(plan: VisionPlan) -> list[str]:
    """Names of the outputs that clients read; what is wrong with a picture is an error to them."""
    tensors = answer_tensors(plan) if plan.answer is not None else own_tensors("vision_ocr")[1]
    return [tensor.name for tensor in tensors if tensor.name != PROBLEM.name]


def _vision_backends(plan: Plan) -> list[str]:
    """Backends that vision networks need, in the order in which images have them."""
    return sorted({network.runtime for vision in plan.visions for network in vision.networks})


def _plan_files(plan: Plan, container: Container) -> list[PlanFile]:
    """Vision networks that are compiled on the GPU host."""
    if plan.target is Target.LOCAL:
        return []
    return [
        plan_file(network, container, plan.gpu.sm, onnx="model/model.onnx")
        for vision in plan.visions
        for network in vision.networks
        if network.runtime == "tensorrt"
    ]


def _start(plan: Plan, container: Container, llms: Named) -> dict[str, Any]:
    """What launch.sh and compose.yaml are written from."""
    loaded = "checkpoint/" if plan.target is Target.LLMAPI else ""
    networks = [network.model for vision in plan.visions for network in vision.networks]
    stubs = 5 * len(llms) + sum(stage.instances for vision in plan.visions for stage in vision.stages)
    needed = [
        (
            "Build the engines first: ./build_engines.sh",
            [f"{names.engine}/1/{loaded}config.json" for _, names in llms]
            + [f"{names.front}/1/tokenizer/tokenizer.json" for _, names in llms]
            + [f"{item.network.model}/1/{PLAN_FILE}" for item in _plan_files(plan, container)],
        ),
        *(
            (
                _onnx_way_out(vision),
                [f"{item.model}/1/model.onnx" for item in vision.networks if item.runtime == "onnxruntime"],
            )
            for vision in plan.visions
        ),
    ]
    return {
        "image": f"trtbuild-tritonserver:{container.release}{'-vision' if networks else ''}",
        "options": launch.server_options(plan, container),
        "restricted": RESTRICTED,
        "ranks": launch.ranks(plan),
        "rank_models": [f"--load-model={names.engine}" for _, names in llms],
        "tritonserver": container.paths.tritonserver,
        "orchestrated": launch.is_orchestrated(plan),
        "engines": sum(llm.instances for llm in plan.llms),
        "needed": [(way_out, paths) for way_out, paths in needed if paths],
        "stop_timeout_s": 2 * launch.EXIT_TIMEOUT_S,
        "shm_bytes": launch.shm_bytes(plan, container, stubs),
    }


def _onnx_way_out(vision: VisionPlan) -> str:
    """How the networks of a vision model that was written without them come into the repository."""
    again = "then write the repository again (README.md has the command), or copy the files there"
    if vision.weights_path is not None or not vision.pipeline:
        return f"They come from {vision.weights_path or 'a model file'}: {again}"
    return f"Get them first: {pipeline(vision.pipeline).package.install}; {again}"


@dataclass(frozen=True)
class _Build:
    """One language model of ``build_engines.sh``: its steps, and where the products go."""

    model: ScriptedModel
    products: Products

    @property
    def job(self) -> Job:
        return self.model.job


def _builds(plan: Plan, spec: DeploymentSpec, container: Container, llms: Named) -> list[_Build]:
    if plan.target is Target.LOCAL:
        return []
    options = {name_of(llm): JobOptions.of(llm) for llm in spec.models}
    builds = []
    for llm, names in llms:
        job = plan_job(
            llm,
            target=plan.target,
            version=container.trtllm,
            options=options.get(llm.name),
            examples=container.paths.examples,
        )
        builds.append(
            _Build(scripted_model(job, container, plan.gpu.sm), Products.of(job, names, plan.target))
        )
    return builds
