"""What a rule sees, and how it reports. A rule is one function over one language model of the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from trtbuild.build.checkpoints import Checkpoint
from trtbuild.catalog.formats import Format, find_format
from trtbuild.catalog.gpus import Gpu
from trtbuild.catalog.versions import Container, find_container
from trtbuild.plan.architecture import Architecture
from trtbuild.plan.device import planned_gpu
from trtbuild.plan.groups import choose_group
from trtbuild.plan.model import Finding, LlmPlan, Plan
from trtbuild.plan.sources import name_of
from trtbuild.preflight.host import BuildHost
from trtbuild.spec import DeploymentSpec, LlmSpec

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Context:
    """Everything that the rules may look at; None and missing entries are things that nobody knows yet.

    Attributes:
        architectures: by the model's name in the repository.
        checkpoints: by the model's name, for models whose folder is on this machine.
        host: the machine that builds.
    """

    plan: Plan
    spec: DeploymentSpec
    architectures: Mapping[str, Architecture]
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict)
    host: BuildHost | None = None

    @property
    def gpu(self) -> Gpu | None:
        """The planned GPU; None for a CPU."""
        return planned_gpu(self.plan)

    @property
    def container(self) -> Container | None:
        """The container's row; None for the target local."""
        return None if self.plan.container is None else find_container(self.plan.container)


@dataclass(frozen=True)
class Subject:
    """One language model with what belongs to it."""

    context: Context
    llm: LlmPlan

    @property
    def architecture(self) -> Architecture:
        return self.context.architectures[self.llm.name]

    @property
    def spec(self) -> LlmSpec | None:
        """What was asked for; None for a model that a repository holds already."""
        entries = self.context.spec.models
        return next((llm for llm in entries if name_of(llm) == self.llm.name), None)

    @property
    def format(self) -> Format:
        return find_format(self.llm.quant)

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.context.checkpoints.get(self.llm.name)

    @property
    def fixed_group(self) -> bool:
        """Whether a checkpoint at hand has its group size already."""
        return self.checkpoint is not None and self.checkpoint.group_size is not None

    @property
    def group_size(self) -> int | None:
        """Weights that share a scale: the checkpoint's own where it is at hand, else the largest that
        fits.
        """
        if self.checkpoint is not None and self.checkpoint.group_size is not None:
            return self.checkpoint.group_size
        return choose_group(self.architecture, self.format, self.llm.tp)

    def finding(self, rule: str, severity: Severity, message: str, *remedies: str) -> Finding:
        """A finding of ``rule``; the model's name is put before the message."""
        return Finding(
            id=rule, severity=severity, message=f"{self.llm.name}: {message}", remedy="; or ".join(remedies)
        )


Rule = Callable[[Subject], Iterable[Finding]]


def gib(size_bytes: float) -> str:
    """Bytes as GiB with one decimal, for messages."""
    return f"{size_bytes / (1 << 30):.1f} GiB"
