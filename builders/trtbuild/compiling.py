"""From a written repository to one that holds its engines: builds each language model, and installs what was
made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trtbuild.build.jobs import JobOptions
from trtbuild.build.runner import BuildSettings, build_model, dry_run
from trtbuild.build.steps import StepEvent
from trtbuild.plan.model import Plan
from trtbuild.plan.sources import name_of
from trtbuild.repository.names import NameScheme, llm_names
from trtbuild.repository.products import Products, install
from trtbuild.spec import DeploymentSpec, Target


@dataclass(frozen=True)
class Left:
    """Steps of one model that this machine does not take, and why it does not take the first."""

    model: str
    steps: tuple[str, ...]
    why: str


def work_folder(repo: Path) -> Path:
    """Where a repository is built: beside it, because every folder inside is a model for Triton."""
    repo = repo.expanduser().resolve()
    return repo.parent / f"{repo.name}.build"


def compile_engines(
    plan: Plan,
    spec: DeploymentSpec,
    repo: Path,
    *,
    names: NameScheme = "own",
    offline: bool = False,
    on_event: Callable[[str, StepEvent], None] = lambda model, event: None,
    on_line: Callable[[str], None] | None = None,
) -> tuple[Left, ...]:
    """Builds every language model of a repository as far as this machine can, and installs what is finished.

    Args:
        on_event: called with a model's name and what became of a step.
        on_line: called with every line that a tool prints.

    Returns:
        What remains for another machine; empty if the repository is complete.

    Raises:
        BuildError, CatalogError, ModelSourceError, RepositoryError: a step failed, or cannot work.
    """
    left = []
    for llm in plan.llms:
        settings = _settings(spec, repo, llm.name, offline)
        built = build_model(llm, plan, settings, on_event=partial(on_event, llm.name), on_line=on_line)
        if built.result.left:
            why = next(event.detail for event in built.result.events if event.state == "left")
            left.append(Left(llm.name, tuple(command.label for command in built.result.left), why))
            continue
        products = Products.of(built.job, llm_names(llm.name, names), plan.target)
        install(repo, built.result.work, products, llm=llm, key=built.key)
    return tuple(left)


def commands_of(plan: Plan, spec: DeploymentSpec, repo: Path) -> Mapping[str, list[list[str]]]:
    """The exact commands of each model's build, by its name; nothing is run or asked of the network.

    Raises:
        BuildError, CatalogError, ModelSourceError: it cannot be built.
    """
    return {
        llm.name: dry_run(llm, plan, _settings(spec, repo, llm.name, offline=True))
        for llm in plan.llms
        if plan.target is not Target.LOCAL
    }


def _settings(spec: DeploymentSpec, repo: Path, name: str, offline: bool) -> BuildSettings:
    entries = {name_of(llm): llm for llm in spec.models}
    options = JobOptions.of(entries[name]) if name in entries else JobOptions()
    return BuildSettings(work_folder(repo), options, offline=offline)
