"""The steps that need a GPU, for ``build_engines.sh``, which is run on another machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from trtbuild.build.commands import Command, Step
from trtbuild.build.jobs import JobOptions, plan_job
from trtbuild.catalog.versions import Container
from trtbuild.plan.model import LlmPlan
from trtbuild.spec import Target


@dataclass(frozen=True)
class ScriptedStep:
    """A command as the template writes it; ``key`` digests everything in it that changes its product."""

    command: Command
    key: str

    @property
    def place(self) -> str:
        """Where it runs: on the host with trtbuild, in the container without a GPU, or with one."""
        if any(word.startswith("trtbuild.") for word in self.command.argv):
            return "host"
        return "cpu" if self.command.step is Step.FETCH else "gpu"

    @property
    def facts(self) -> str:
        """What the product's JSON files must say, one fact a line."""
        return "\n".join(json.dumps([fact.file, fact.path, fact.value]) for fact in self.command.facts)


@dataclass(frozen=True)
class ScriptedModel:
    """One language model of the script: where its weights come from, what is run, what goes where."""

    llm: LlmPlan
    steps: tuple[ScriptedStep, ...]
    source: str | None  # folder on the machine that builds; None: fetched
    calibration: str | None  # content of calibration/train.jsonl
    notes: tuple[str, ...]
    tokenizer: str  # folders inside the repository
    engine: str
    product: str  # folder of the build that is taken over into ``engine``

    @property
    def engine_files(self) -> list[str]:
        """What is taken over of an engine; config.json last: without it nothing loads."""
        return [*(f"rank{rank}.engine" for rank in range(self.llm.tp)), "config.json"]


def scripted_model(
    llm: LlmPlan, container: Container, *, target: Target, tokenizer: str, engine: str, options: JobOptions
) -> ScriptedModel:
    """Decides how one model's engine, or the checkpoint that the LLM API loads, is made on another machine.

    Args:
        tokenizer, engine: folders inside the repository that get the tokenizer's files and the engine.

    Raises:
        BuildError, CatalogError, ModelSourceError: there is no way from the model's weights to an engine.
    """
    job = plan_job(
        llm, target=target, version=container.trtllm, options=options, examples=container.paths.examples
    )
    calibration = job.calibration.content if job.calibration is not None else None
    return ScriptedModel(
        llm=job.llm,
        steps=tuple(ScriptedStep(command, _key(command, container, calibration)) for command in job.commands),
        source=str(job.folder) if job.folder is not None else None,
        calibration=calibration,
        notes=job.notes,
        tokenizer=tokenizer,
        engine=engine,
        product=job.commands[-1].product if job.commands else "source",
    )


def _key(command: Command, container: Container, calibration: str | None) -> str:
    facts = [container.image, container.tensorrt, command.argv, [vars(fact) for fact in command.facts]]
    if "calibration" in command.inputs:
        facts.append(calibration or "")
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
