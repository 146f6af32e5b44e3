"""Rules that are checked before anything is downloaded, calibrated, compiled or loaded.

``check`` runs all of them. A rule has an id and says what was found, why it cannot work and what would.
"""

from __future__ import annotations

from collections.abc import Mapping

from trtbuild.build.checkpoints import Checkpoint
from trtbuild.errors import PlanError
from trtbuild.plan.architecture import Architecture
from trtbuild.plan.model import Finding, Plan
from trtbuild.preflight.base import Context, Subject
from trtbuild.preflight.host import BuildHost, read_build_host
from trtbuild.preflight.registry import RULES
from trtbuild.spec import DeploymentSpec

__all__ = ["BuildHost", "check", "read_build_host", "refuse_errors"]


def check(
    plan: Plan,
    spec: DeploymentSpec,
    architectures: Mapping[str, Architecture],
    *,
    checkpoints: Mapping[str, Checkpoint] | None = None,
    host: BuildHost | None = None,
) -> list[Finding]:
    """Returns what every rule found, in the order of the registry, model by model.

    Args:
        architectures: by the model's name in the repository; all language models of ``plan``.
        checkpoints: by the same name, for models whose folder is on this machine.
        host: the machine that builds; None leaves its rules out.
    """
    context = Context(plan, spec, architectures, checkpoints or {}, host)
    subjects = [Subject(context, llm) for llm in plan.llms]
    return [finding for subject in subjects for rule in RULES for finding in rule(subject)]


def refuse_errors(findings: list[Finding]) -> None:
    """Raises when a finding is an error.

    Raises:
        PlanError: names every error's rule; the remedies are theirs.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise PlanError(
            "; ".join(f"[{error.id}] {error.message}" for error in errors),
            *dict.fromkeys(error.remedy for error in errors if error.remedy),
        )
