"""Builds the language models of a plan: decides, pins, checks what was fetched, and runs the steps."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trtbuild.build.cache import CPU_TOOLS, container_tools, cpu_tools, folder_identity, step_keys
from trtbuild.build.checkpoints import Checkpoint, read_checkpoint
from trtbuild.build.commands import ASK_COMMIT, FETCH_SECRETS, Command, Step
from trtbuild.build.fetch import Ask, from_cache, pinned
from trtbuild.build.jobs import Job, JobOptions, plan_job
from trtbuild.build.places import Container, Here, Place
from trtbuild.build.routes import route
from trtbuild.build.steps import BuildResult, StepEvent, choose_place, run_job
from trtbuild.catalog.formats import find_format
from trtbuild.catalog.versions import Container as ContainerRow
from trtbuild.catalog.versions import find_container
from trtbuild.errors import BuildError
from trtbuild.plan.architecture import from_hf_config
from trtbuild.plan.groups import fits
from trtbuild.plan.model import LlmPlan, Plan
from trtbuild.spec import Target

_ASK_TIMEOUT_S = 300  # the container's image may have to be started cold


@dataclass(frozen=True)
class BuildSettings:
    """Where and how a plan is built.

    Attributes:
        build_dir: gets one folder a model.
        offline: ask no hub.
        places: where steps may run, in the order in which they are tried; None: here, then in the container.
    """

    build_dir: Path
    options: JobOptions = field(default_factory=JobOptions)
    offline: bool = False
    places: Sequence[Place] | None = None


@dataclass(frozen=True)
class Built:
    """A build that was brought up to date: what was decided, what became of its steps, the last one's key."""

    job: Job
    result: BuildResult
    key: str


def build_model(
    llm: LlmPlan,
    plan: Plan,
    settings: BuildSettings,
    *,
    on_event: Callable[[StepEvent], None] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Built:
    """Brings one model's build up to date; steps that no place takes are left for the script.

    Raises:
        BuildError, CatalogError, ModelSourceError: it cannot be built, or a step failed.
    """
    work = settings.build_dir / llm.name
    places = settings.places if settings.places is not None else default_places(plan)
    job = from_cache(
        pinned(
            decide(llm, plan, settings),
            memo=work / "source.pin",
            offline=settings.offline,
            ask=_asked_in(places, work),
        )
    )
    keys, source = _keys(job, plan, work)
    result = run_job(
        job,
        keys,
        work=work,
        places=places,
        check_source=lambda folder: check_source(folder, job, plan),
        on_event=on_event,
        on_line=on_line,
    )
    return Built(job, result, keys[-1] if keys else source)


def dry_run(llm: LlmPlan, plan: Plan, settings: BuildSettings) -> list[list[str]]:
    """The exact commands of a build, each in the first place that takes it, else as the container would run
    it.

    Nothing is asked of the network: an unpinned revision stands as it was given.

    Raises:
        BuildError, CatalogError, ModelSourceError: it cannot be built.
    """
    work = settings.build_dir / llm.name
    places = settings.places if settings.places is not None else default_places(plan)
    return [
        next((place for place in places if place.refuses(command) is None), places[-1]).argv(command, work)
        for command in decide(llm, plan, settings).commands
    ]


def decide(llm: LlmPlan, plan: Plan, settings: BuildSettings) -> Job:
    """The job of one model of a plan.

    Raises:
        BuildError, CatalogError, ModelSourceError: there is no way from its weights to the target.
    """
    container = _container(plan)
    return plan_job(
        llm,
        target=plan.target,
        version=container.trtllm,
        options=settings.options,
        examples=container.paths.examples,
    )


def default_places(plan: Plan) -> tuple[Place, ...]:
    """This machine, then the plan's container on it."""
    container = _container(plan)
    return Here(version=container.trtllm, sm=plan.gpu.sm), Container(container.image, sm=plan.gpu.sm)


def check_source(folder: Path, job: Job, plan: Plan) -> None:
    """Holds fetched weights against what the job was decided for, before anything long begins.

    Raises:
        BuildError: they are something else than the catalogue says, or do not fit the plan's TP.
        ModelSourceError: they cannot be used.
    """
    found = read_checkpoint(folder)
    llm, recipe = job.llm, job.recipe
    way = route(found, quant=llm.quant, target=plan.target, version=plan.trtllm_version)
    if (way.method, way.source_quant) != (recipe.method, recipe.source_quant):
        raise BuildError(
            f"{llm.source} holds {found.format} weights, and the build was planned for others "
            f"({recipe.source_quant or 'not quantised'})",
            f"plan again with --weights {folder}",
        )
    _check_width(found, job, plan)


def _check_width(found: Checkpoint, job: Job, plan: Plan) -> None:
    group = found.group_size
    if group is None or found.kind != "hf" or plan.target is not Target.ENGINE:
        return
    fmt = find_format(job.llm.quant)
    if not fits(from_hf_config(found.folder), fmt, job.llm.tp, group):
        raise BuildError(
            f"{job.llm.source} has groups of {group}, which its layers do not fit at TP {job.llm.tp}",
            "plan again with another TP; `trtbuild plan` names those that fit",
        )


def _container(plan: Plan) -> ContainerRow:
    if plan.container is None:
        raise BuildError("the target local reads GGUF and OpenVINO IR and builds nothing")
    return find_container(plan.container)


def _asked_in(places: Sequence[Place], work: Path) -> Ask:
    """Asks the hub where the fetch will run: with the client, the network and the token of that place."""

    def ask(repository: str, revision: str) -> str:
        command = Command(
            Step.FETCH, ("python3", "-c", ASK_COMMIT, repository, revision), "source", (), env=FETCH_SECRETS
        )
        place, why = choose_place(command, places)
        if place is None:
            raise ConnectionError(why)
        work.mkdir(parents=True, exist_ok=True)
        place.sweep(command, work)
        try:
            answer = subprocess.run(
                place.argv(command, work),
                env=place.environment(command),
                capture_output=True,
                text=True,
                timeout=_ASK_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ConnectionError(f"no answer in {_ASK_TIMEOUT_S} s") from error
        words = answer.stdout.split()
        if answer.returncode != 0 or not words:
            raise ConnectionError(answer.stderr)
        return words[-1]  # a container greets first

    return ask


def _keys(job: Job, plan: Plan, work: Path) -> tuple[tuple[str, ...], str]:
    """A key for each command, and the identity of the weights."""
    if job.recipe.revision is not None:
        source = f"{job.llm.source}@{job.recipe.revision}"
    else:
        assert job.folder is not None
        source = folder_identity(job.folder, work)
    work.mkdir(parents=True, exist_ok=True)
    loras = {name: folder_identity(folder, work) for name, folder in job.loras.items()}
    (work / CPU_TOOLS).write_text(f"{cpu_tools()}\n", encoding="utf-8")  # for a script that goes on elsewhere
    tools = container_tools(_container(plan), plan.gpu.sm)
    return step_keys(job, tools=tools, source=source, loras=loras), source
