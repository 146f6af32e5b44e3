"""From a plan to everything that its repository will hold, validated, with nothing written yet."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path

import yaml

from trtbuild.catalog.versions import Container, containers, find_container
from trtbuild.plan.model import LlmPlan, Plan
from trtbuild.repository.contents import ModelUnit, Repository, Text
from trtbuild.repository.deployment import deployment_files
from trtbuild.repository.differences import LOCAL_DIFFERENCES
from trtbuild.repository.llm import LlmSources, llm_unit
from trtbuild.repository.manifest import Manifest, make_manifest
from trtbuild.repository.names import NameScheme, check_names
from trtbuild.repository.validate import check_repository
from trtbuild.repository.vision import vision_unit
from trtbuild.spec import DeploymentSpec, Target

_PLAN, _SPEC = "plan.json", "deployment.yaml"


def plan_container(plan: Plan) -> Container:
    """The container that a plan is for; the local target speaks the newest one's interface."""
    return containers()[0] if plan.container is None else find_container(plan.container)


def compose(
    plan: Plan,
    spec: DeploymentSpec,
    *,
    text_assets: Mapping[str, Path],
    weights: Mapping[str, Path],
    names: NameScheme = "own",
    reference: bool = False,
    leave: Collection[str] = (),
) -> tuple[Repository, Manifest]:
    """Everything that a repository will hold, validated, with nothing written.

    Args:
        text_assets: model name → folder with its tokenizer files (or with what a vision front needs).
        weights: model name (for vision: of each network) → GGUF or ONNX file, or OpenVINO IR folder.
        leave: models of the plan that a repository holds already and whose folders are not made anew.

    Raises:
        RepositoryError: for clashing names, missing files, or configurations that contradict each other.
    """
    check_names(plan, names)
    container = plan_container(plan)
    units: list[ModelUnit] = []
    for model in (model for model in plan.models if model.name not in leave):
        assets = text_assets.get(model.name)
        if isinstance(model, LlmPlan):
            sources = LlmSources(tokenizer=assets, weights=weights.get(model.name))
            unit = llm_unit(
                model, target=plan.target, container=container, sm=plan.gpu.sm, sources=sources, scheme=names
            )
        else:
            unit = vision_unit(model, target=plan.target, container=container, weights=weights, assets=assets)
        units.append(unit)
    files = root_files(plan, spec, container, names)
    repository = Repository(tuple(units), files)
    check_repository(repository)
    local = [asdict(entry) for entry in LOCAL_DIFFERENCES] if plan.target is Target.LOCAL else []
    manifest = make_manifest(
        repository,
        plan=plan,
        spec=spec,
        names=names,
        interface=container.interface,
        reference=reference,
        local_differences=local,
    )
    return repository, manifest


def root_files(plan: Plan, spec: DeploymentSpec, container: Container, names: NameScheme) -> dict[str, Text]:
    document = json.dumps(plan.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
    texts = {_PLAN: document, _SPEC: spec_text(spec), **deployment_files(plan, spec, container, names)}
    return {name: Text(text.encode()) for name, text in texts.items()}


def spec_text(spec: DeploymentSpec) -> str:
    """The spec as ``deployment.yaml``: what it states, defaults left out."""
    head = "# What this repository was made from; README.md says how to apply a change.\n"
    stated = spec.model_dump(mode="json", exclude_defaults=True)
    stated |= (
        {
            "vision": [
                {"pipeline": row.pipeline, **row.model_dump(mode="json", exclude_defaults=True)}
                for row in spec.vision
            ]
        }
        if spec.vision
        else {}
    )
    return head + yaml.safe_dump(stated, sort_keys=False, allow_unicode=True)
