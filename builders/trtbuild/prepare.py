"""From a spec to a plan on this machine: finds weights, chooses target, GPU and container, then plans.

Nothing here writes; nothing here prints. What a person should know is in `Prepared.notes`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trtbuild import preflight
from trtbuild.budgeted import has_open_budget, with_limits
from trtbuild.build.jobs import JobOptions, plan_job
from trtbuild.build.vision_source import SingleNetwork
from trtbuild.build.weights import (
    gguf_header,
    packaged_file,
)
from trtbuild.catalog.gpus import Gpu, find_gpu, unlisted_gpu
from trtbuild.catalog.versions import (
    Container,
    container_of_trtllm,
    default_container,
    find_container,
    version_key,
)
from trtbuild.catalog.vision import pipeline
from trtbuild.errors import CatalogError, ModelSourceError, RepositoryError, TrtbuildError
from trtbuild.found import FoundModel
from trtbuild.plan.model import Finding, LlmPlan, Plan, VisionPlan
from trtbuild.plan.planner import make_plan
from trtbuild.plan.sources import name_of
from trtbuild.plan.vision import VisionSource
from trtbuild.published import catalogued
from trtbuild.repository.names import NameScheme, check_names
from trtbuild.spec import DeploymentSpec, Target
from trtbuild.targets import DEFAULT_GPU, Host, TargetChoice, choose_target, detect_host

LAST_TRTLLM_WITH_BUILDER = "1.2.1"  # TensorRT-LLM PR 15918 removed trtllm-build after it
# Rules on what a target can serve at all.
_OF_THE_TARGET = ("format.gpu", "format.model", "format.target", "checkpoint.route")
_UNPLANNABLE = "plan"
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Prepared:
    """A planned deployment.

    Attributes:
        spec: as given.
        plan: its plan, whether or not it fits.
        weights: files of the local target by model name (for vision: by network).
        notes: what was assumed, in sentences.
        builds: whether this machine is to build it.
    """

    spec: DeploymentSpec
    plan: Plan
    weights: Mapping[str, Path]
    notes: tuple[str, ...]
    builds: bool = False


def _within_budgets(spec: DeploymentSpec, **how: Any) -> Prepared:
    """The memory's limits first, then within them those of the budgets."""
    unlimited = tuple(llm.model_copy(update={"ttft_ms": None}) for llm in spec.models)
    most = prepare(spec.model_copy(update={"models": unlimited}), **how)
    if most.plan.errors or not most.plan.fits:
        return most
    limited, told = with_limits(spec, most.plan)
    prepared = prepare(limited, **how)
    return replace(prepared, notes=(*prepared.notes, *told))


def prepare(
    spec: DeploymentSpec,
    *,
    pinned: Sequence[LlmPlan | VisionPlan] = (),
    host: Host | None = None,
    names: NameScheme = "own",
    build_dir: Path | None = None,
    build: bool | None = None,
) -> Prepared:
    """Plans a deployment for this machine, or for the GPU that the spec names.

    Args:
        spec: what shall run.
        pinned: models that the repository holds already; their numbers stay.
        host: what this machine has; default: asked of it.
        names: how the repository will name the models.
        build_dir: where it will be built; its machine's memory, disk and driver are then checked.
        build: whether it will be built on this machine; None: if the planned GPU is here.

    Raises:
        CatalogError, ModelSourceError, PlanError: what cannot be found or planned.
    """
    host = host or detect_host()
    if any(map(has_open_budget, spec.models)):
        return _within_budgets(spec, pinned=pinned, host=host, names=names, build_dir=build_dir, build=build)
    spec, renamed = catalogued(spec)
    found = {name_of(llm): FoundModel.of(llm) for llm in spec.models}
    choice = choose_target(
        asked=spec.target,
        gpu=spec.gpu,
        host=host,
        candidates=[item.candidate(name) for name, item in found.items()],
        has_builder=_has_builder(host.trtllm_version),
    )
    choice = _possible(choice, spec, found, host, pinned)
    local = choice.target is Target.LOCAL
    weights = {name: item.require_local() if local else item.require_gpu() for name, item in found.items()}
    known = {name: item for name, item in weights.items() if item is not None}
    gpu, gpu_note = (None, "") if local else choose_gpu(spec.gpu, host)
    container, container_note = (None, "") if local else _container(spec, choice.target, gpu)
    plan = make_plan(
        spec,
        target=choice.target,
        target_reason=choice.reason,
        gpu=gpu,
        gpu_note=gpu_note,
        host_memory_bytes=host_memory_bytes() if local else None,
        container=container,
        pinned=pinned,
        check=preflight.check,
        container_for=lambda other: _container(spec, choice.target, other)[0],
        fixed_gpu=bool(pinned),
        weights=known,
        gguf_metadata={
            name: gguf_header(item.path).entries for name, item in known.items() if item.kind == "gguf"
        },
        graphs=_graphs(spec),
    )
    builds = not local and bool(plan.llms) and (host.has_gpu(plan.gpu.sm) if build is None else build)
    build_host = None
    if builds and build_dir is not None:
        build_host = preflight.read_build_host(build_dir, ram_bytes=host_memory_bytes())
    found_by_rules = [*preflight.check(plan, spec, host=build_host), *_names(plan, names)]
    plan = plan.model_copy(update={"findings": (*plan.findings, *found_by_rules)})
    files = {name: item.path for name, item in known.items()} if local else {}
    new = {vision.name for vision in spec.vision}
    for vision in plan.visions:
        if local and vision.name in new and vision.picture is None:
            files.update(vision_files(vision))
    notes = [
        *renamed,
        *(item.note_for(choice.target) for item in found.values()),
        container_note,
        *_build_notes(plan, spec),
    ]
    if local and (unused := spec.gpu or spec.container or spec.trtllm):
        notes.append(f"{unused} is not used: the target local runs on this CPU")
    return Prepared(spec=spec, plan=plan, weights=files, notes=tuple(filter(None, notes)), builds=builds)


def _possible(
    choice: TargetChoice,
    spec: DeploymentSpec,
    found: Mapping[str, FoundModel],
    host: Host,
    pinned: Sequence[LlmPlan | VisionPlan],
) -> TargetChoice:
    """The target that nobody asked for, unless only the LLM API serves these weights on this GPU.

    Other rules, such as that of a KV cache that breaks answers, are no reason to serve it elsewhere, and no
    reason against it: the LLM API's own are then those to be told.
    """
    if spec.target is not None or choice.target is not Target.ENGINE or not spec.models:
        return choice
    errors = _errors(Target.ENGINE, spec, found, host, pinned)
    forbidden = [error for error in errors if error.id in _OF_THE_TARGET]
    if not forbidden:
        return choice
    others = {error.id for error in _errors(Target.LLMAPI, spec, found, host, pinned)}
    if others & {*_OF_THE_TARGET, _UNPLANNABLE}:
        return choice
    return TargetChoice(Target.LLMAPI, f"{choice.reason}; not by an engine: {forbidden[0].message}")


def _errors(
    target: Target,
    spec: DeploymentSpec,
    found: Mapping[str, FoundModel],
    host: Host,
    pinned: Sequence[LlmPlan | VisionPlan],
) -> list[Finding]:
    """What forbids a target, whatever its memory."""
    gpu, _ = choose_gpu(spec.gpu, host)
    given = {name: item.require_gpu() for name, item in found.items()}
    try:
        plan = make_plan(
            spec,
            target=target,
            target_reason="",
            gpu=gpu,
            container=_container(spec, target, gpu)[0],
            pinned=pinned,
            fixed_gpu=True,
            advice=False,
            weights={name: item for name, item in given.items() if item is not None},
            graphs=_graphs(spec),
        )
        return [*plan.errors, *(f for f in preflight.check(plan, spec) if f.severity == "error")]
    except TrtbuildError as error:
        return [Finding(id=_UNPLANNABLE, severity="error", message=error.message)]


def _names(plan: Plan, scheme: NameScheme) -> list[Finding]:
    try:
        check_names(plan, scheme)
    except RepositoryError as error:
        remedy = "; or ".join(error.remedies)
        return [Finding(id="names", severity="error", message=error.message, remedy=remedy)]
    return []


def _build_notes(plan: Plan, spec: DeploymentSpec) -> list[str]:
    """What is decided about the builds that the user did not ask for."""
    if plan.errors or plan.trtllm_version is None:
        return []
    options = {name_of(llm): JobOptions.of(llm) for llm in spec.models}
    return [
        f"{llm.name}: {note}"
        for llm in plan.llms
        if llm.name in options
        for note in plan_job(
            llm, target=plan.target, version=plan.trtllm_version, options=options[llm.name]
        ).notes
    ]


def vision_files(vision: VisionPlan) -> dict[str, Path]:
    """ONNX file of each network of a pipeline, by model name: from ``weights:``, else from its package.

    Raises:
        ModelSourceError: a file is missing or is not the one that was tried.
    """
    row = pipeline(vision.pipeline)
    files = {}
    for network in vision.networks:
        entry = row.network(network.role)
        if vision.weights_path is not None:
            path = Path(vision.weights_path) / Path(entry.file).name
            if not path.is_file():
                raise ModelSourceError(f"{path}: no such file; {vision.name} needs it for {network.model}")
        else:
            path = packaged_file(
                package=row.package.name,
                version=row.package.version,
                file=entry.file,
                sha256=entry.sha256,
                install=row.package.install,
            )
        files[network.model] = path
    return files


def _graphs(spec: DeploymentSpec) -> dict[str, VisionSource]:
    """What is known of the networks of vision models that consist of one."""
    networks = {entry.name: SingleNetwork.of(entry) for entry in spec.vision}
    return {name: network.source for name, network in networks.items() if network is not None}


def host_memory_bytes() -> int:
    """RAM of this machine, or of the control group that the process is confined to, whichever is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit in map(Path, _CGROUP_LIMITS):
        if limit.is_file() and (text := limit.read_text().strip()).isdigit():
            total = min(total, int(text))
    return total


def _has_builder(trtllm_version: str | None) -> bool:
    if trtllm_version is None:
        return True
    try:
        return version_key(trtllm_version) <= version_key(LAST_TRTLLM_WITH_BUILDER)
    except CatalogError:  # a pre-release: read as the release that it leads to
        release = trtllm_version.split("rc")[0].rstrip(".")
        return version_key(release) <= version_key(LAST_TRTLLM_WITH_BUILDER)


def choose_gpu(asked: str | None, host: Host) -> tuple[Gpu, str]:
    """The GPU to plan for, and what was assumed: the one that is asked for, the one here, or the default.

    Raises:
        CatalogError: an unknown name.
    """
    if asked is not None and asked not in [gpu.name for gpu in host.gpus]:
        match = find_gpu(asked)
        return match.gpu, match.note
    if host.gpus:
        here = next((gpu for gpu in host.gpus if gpu.name == asked), host.gpus[0])
        try:
            match = find_gpu(here.name)
        except CatalogError:
            gpu = unlisted_gpu(name=here.name, nvidia_smi_bytes=here.memory_bytes, sm=here.sm)
            return gpu, f"{here.name} is not in the catalogue; planned by what nvidia-smi says of it"
        return match.gpu, match.note
    return find_gpu(
        DEFAULT_GPU
    ).gpu, f"no GPU is here and none is named: planned for an {DEFAULT_GPU}; --gpu NAME"


def _container(spec: DeploymentSpec, target: Target, gpu: Gpu | None) -> tuple[Container, str]:
    if spec.trtllm is not None:
        container = container_of_trtllm(spec.trtllm)
    elif spec.container is not None:
        container = find_container(spec.container)
    else:
        return default_container(target=target, sm=gpu.sm if gpu else None)
    asked = container.release
    if target not in container.targets:
        raise CatalogError(
            f"container {asked} (TensorRT-LLM {container.trtllm}) does not serve the target {target.value}",
            "choose another --container or --target",
        )
    if gpu is not None and gpu.sm not in container.sms:
        raise CatalogError(
            f"container {asked} (TensorRT-LLM {container.trtllm}) does not run on {gpu.name} (SM {gpu.sm})",
            "choose a newer --container",
        )
    return container, ""
