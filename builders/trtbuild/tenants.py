"""Repositories that hold several models: one more, one less; the others stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trtbuild.catalog.versions import container_of_trtllm, find_container
from trtbuild.errors import RepositoryError, SpecError, in_shell
from trtbuild.plan.device import planned_gpu
from trtbuild.plan.model import Plan
from trtbuild.plan.planner import make_plan
from trtbuild.plan.sources import name_of
from trtbuild.prepare import Prepared, host_memory_bytes, prepare
from trtbuild.published import catalogued
from trtbuild.repository.compose import plan_container
from trtbuild.repository.manifest import MANIFEST, Manifest, read_manifest
from trtbuild.repository.transaction import finish_interrupted
from trtbuild.repository.update import WriteReport
from trtbuild.repository.writer import remove_model
from trtbuild.spec import DeploymentSpec


@dataclass(frozen=True)
class Repository:
    """A repository on disk with what its manifest says of it."""

    path: Path
    manifest: Manifest
    plan: Plan
    spec: DeploymentSpec

    @classmethod
    def open(cls, path: Path) -> Repository:
        """Reads the manifest, after finishing a change that a killed writer left half applied.

        Raises:
            RepositoryError: no such folder, not written by trtbuild, a manifest that cannot be read, or
                another process that is writing to it.
        """
        path = path.expanduser().resolve()
        finish_interrupted(path)
        manifest = read_manifest(path) if path.is_dir() else None
        if manifest is None:
            what = f"it has no {MANIFEST}" if path.is_dir() else "no such folder"
            raise RepositoryError(
                f"{path} is not a repository that trtbuild wrote: {what}",
                "write one first: trtbuild --model NAME --quant FORMAT --output FOLDER",
            )
        try:
            plan, spec = Plan.model_validate(manifest.plan), DeploymentSpec.model_validate(manifest.spec)
        except ValueError as error:
            raise RepositoryError(
                f"{path / MANIFEST} is damaged: {error}", "write the repository again"
            ) from error
        return cls(path, manifest, plan, spec)


def prepare_addition(
    repository: Repository, spec: DeploymentSpec, *, build_dir: Path | None = None, build: bool | None = None
) -> Prepared:
    """Plans the models of ``spec`` beside those of a repository, whose numbers stay.

    Args:
        build_dir, build: see `prepare`.

    Raises:
        RepositoryError: a name that is taken.
        SpecError: another target, GPU or container than the repository's.
    """
    spec, renamed = catalogued(spec)
    plan = repository.plan
    taken = {model.name for model in plan.models}
    new = {name_of(llm) for llm in spec.models} | {vision.name for vision in spec.vision}
    for name in sorted(taken & new):
        raise RepositoryError(
            f"{repository.path} has a model called {name!r} already",
            "give the new one another name (of add-vision, its first word; of add, --name)",
            f"replace it: trtbuild remove {name} {in_shell(repository.path)}, then add again",
        )
    if spec.target not in (None, plan.target):
        raise SpecError(
            f"{repository.path} is for the target {plan.target.value}; one server has one target",
            "leave out --target, or write the model to a repository of its own with --output",
        )
    gpu = planned_gpu(plan)
    fixed = {"target": plan.target, "gpu": gpu.name if gpu else None, "container": plan.container}
    container = spec.container and find_container(spec.container).release
    if spec.trtllm is not None:
        container = container_of_trtllm(spec.trtllm).release
    for key, asked in (("gpu", spec.gpu), ("container", container)):
        if asked is not None and asked not in (fixed[key], getattr(repository.spec, key)):
            device = f"the {key} {fixed[key]}" if fixed[key] else "the CPU"
            raise SpecError(f"{repository.path} is planned for {device}", f"leave out --{key}")
    fixed["trtllm"] = None
    added = prepare(
        spec.model_copy(update=fixed),
        pinned=plan.models,
        names=repository.manifest.names,
        build_dir=build_dir,
        build=build,
    )
    whole = repository.spec.model_copy(
        update={
            **fixed,
            "models": (*repository.spec.models, *spec.models),
            "vision": (*repository.spec.vision, *spec.vision),
        }
    )
    whole_plan = added.plan.model_copy(update={"target_reason": plan.target_reason})
    return Prepared(whole, whole_plan, added.weights, (*renamed, *added.notes), added.builds)


def remove(repository: Repository, name: str) -> WriteReport:
    """Takes one model out.

    Raises:
        RepositoryError: no such model, or it is the last one.
    """
    plan, spec = repository.plan, repository.spec
    left = [model for model in plan.models if model.name != name]
    if len(left) == len(plan.models):
        held = ", ".join(model.name for model in plan.models)
        raise RepositoryError(
            f"{repository.path} has no model {name!r}",
            f"it holds {held}",
            *(
                [f"the name comes first: trtbuild remove NAME {in_shell(name)}"]
                if Path(name).is_dir()
                else []
            ),
        )
    if not left:
        raise RepositoryError(
            f"{name} is the last model of {repository.path}",
            f"delete the folder: rm -r {in_shell(repository.path)}",
        )
    models = tuple(llm for llm in spec.models if name_of(llm) != name)
    vision = tuple(entry for entry in spec.vision if entry.name != name)
    new_plan = make_plan(
        DeploymentSpec.model_construct(),  # nothing new: all that is left is pinned
        target=plan.target,
        target_reason=plan.target_reason,
        gpu=planned_gpu(plan),
        host_memory_bytes=host_memory_bytes(),
        container=plan_container(plan) if plan.container else None,
        pinned=left,
    )
    rest = spec.model_copy(update={"models": models, "vision": vision})
    return remove_model(repository.path, name, plan=new_plan, spec=rest)
