"""Files that lie beside the models: what the repository is, how it is built and how it is launched."""

from __future__ import annotations

from trtbuild.catalog.versions import Container
from trtbuild.plan.model import Plan
from trtbuild.repository.names import NameScheme, llm_names
from trtbuild.repository.render import render


def deployment_files(plan: Plan, container: Container, names: NameScheme) -> dict[str, str]:
    """File name → text."""
    context = {
        "plan": plan,
        "container": container,
        "llms": [(llm, llm_names(llm.name, names)) for llm in plan.llms],
    }
    return {"README.md": render("deployment/README.md.j2", **context)}
