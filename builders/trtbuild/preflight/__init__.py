"""Rules that are checked before anything is downloaded, calibrated, compiled or loaded.

``check`` runs all of them. A rule has an id and says what was found, why it cannot work and what would.
"""

from __future__ import annotations

from collections.abc import Mapping

from trtbuild.build.checkpoints import Checkpoint, read_checkpoint
from trtbuild.build.jobs import local_folder
from trtbuild.errors import CatalogError, ModelSourceError, PlanError
from trtbuild.plan.architecture import Architecture
from trtbuild.plan.model import Finding, Plan
from trtbuild.plan.sources import name_of, resolve
from trtbuild.preflight.base import Context, Subject
from trtbuild.preflight.host import BuildHost, read_build_host
from trtbuild.preflight.registry import LOCAL_RULES, RULES
from trtbuild.spec import DeploymentSpec, LlmSpec, Target

__all__ = ["BuildHost", "architectures_of", "check", "read_build_host", "refuse_errors"]

# The planner says the same of a plan that it makes, under the rule's id or this one. A plan can also come
# from a file, and models of a repository are planned by an older version, so the rules look at both.
_SAID_BY_PLANNER = {"kv.support": "kv.dtype"}


def check(
    plan: Plan,
    spec: DeploymentSpec,
    architectures: Mapping[str, Architecture] | None = None,
    *,
    checkpoints: Mapping[str, Checkpoint] | None = None,
    host: BuildHost | None = None,
) -> list[Finding]:
    """Returns what the rules found beyond ``plan.findings``, in the order of the registry, model by model.

    Args:
        architectures: by the model's name in the repository; None looks them up by the plan's sources.
        checkpoints: by the same name, for models whose folder is on this machine; None reads those folders.
        host: the machine that builds; None leaves its rules out.

    Raises:
        CatalogError, ModelSourceError: a model of the plan that cannot be found again.
    """
    known = architectures_of(plan, spec) if architectures is None else architectures
    unreadable: list[Finding] = []
    if checkpoints is None:
        checkpoints, unreadable = _checkpoints_of(plan)
    context = Context(plan, spec, known, checkpoints, host)
    rules = LOCAL_RULES if plan.target is Target.LOCAL else RULES
    said = {(finding.id, finding.message.split(":", 1)[0]) for finding in plan.findings}
    found = unreadable + [
        finding
        for llm in plan.llms
        for rule in rules
        for finding in rule(Subject(context, llm))
        if (_SAID_BY_PLANNER.get(finding.id, finding.id), llm.name) not in said
    ]
    # Two rules may come upon the same thing, one of them by trying what the build would do: it is said once.
    first = {finding.message: finding for finding in reversed((*plan.findings, *found))}
    return [finding for finding in found if first[finding.message] is finding]


def architectures_of(plan: Plan, spec: DeploymentSpec) -> dict[str, Architecture]:
    """Architectures by the model's name; for the target local, of those that the catalogue or a folder tells.

    Raises:
        CatalogError, ModelSourceError: a model for a GPU that is in no catalogue and no folder.
    """
    described = {name_of(llm): llm for llm in spec.models}
    found = {}
    for llm in plan.llms:
        entry = described.get(llm.name) or LlmSpec(model=llm.source, name=llm.name)
        try:
            found[llm.name] = resolve(entry).architecture
        except (CatalogError, ModelSourceError):
            if plan.target is not Target.LOCAL:
                raise
    return found


def _checkpoints_of(plan: Plan) -> tuple[dict[str, Checkpoint], list[Finding]]:
    """Model folders on this machine; what makes one unusable is a finding of its own."""
    found: dict[str, Checkpoint] = {}
    unreadable = []
    for llm in plan.llms if plan.target is not Target.LOCAL else ():
        folder = local_folder(llm)
        if folder is None or not any(folder.glob("*.safetensors")):
            continue  # a folder with a config.json alone is planned with, and built from later
        try:
            found[llm.name] = read_checkpoint(folder)
        except ModelSourceError as error:
            unreadable.append(
                Finding(
                    id="checkpoint.unreadable",
                    severity="error",
                    message=f"{llm.name}: {error.message}",
                    remedy="; or ".join(error.remedies),
                )
            )
    return found, unreadable


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
