"""The steps of a build for ``build_engines.sh``, which is run on another machine."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from trtbuild.build.cache import StaticKey, container_tools, static_keys
from trtbuild.build.commands import Command, Step
from trtbuild.build.jobs import Job
from trtbuild.catalog.versions import Container

_COMMIT = '"$commit"'  # the script's variable: what a revision names is asked on the machine that fetches


@dataclass(frozen=True)
class ScriptedStep:
    """A command as the template writes it."""

    command: Command
    key: StaticKey
    revision: str | None = None

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

    @property
    def words(self) -> str:
        """The command for bash."""
        return " ".join(
            _COMMIT if self.revision is not None and word == self.revision else shlex.quote(word)
            for word in self.command.argv
        )


@dataclass(frozen=True)
class ScriptedModel:
    """One language model of the script."""

    job: Job
    steps: tuple[ScriptedStep, ...]

    @property
    def calibration(self) -> str | None:
        """Content of calibration/train.jsonl."""
        return self.job.calibration.content if self.job.calibration is not None else None


def scripted_model(job: Job, container: Container, sm: str | None) -> ScriptedModel:
    """How one model's engine, or the checkpoint that the LLM API loads, is made on another machine.

    Args:
        sm: compute capability that the plan is for.
    """
    keys = static_keys(job, tools=container_tools(container, sm))
    steps = (
        ScriptedStep(command, key, job.recipe.revision if command.step is Step.FETCH else None)
        for command, key in zip(job.commands, keys, strict=True)
    )
    return ScriptedModel(job, tuple(steps))
