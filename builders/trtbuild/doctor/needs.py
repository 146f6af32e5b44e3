"""What a repository needs from its host: its container, shared memory, RAM, GPU memory, packages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trtbuild.catalog.versions import Container, container_of_trtllm, find_container
from trtbuild.errors import CatalogError, RepositoryError
from trtbuild.lint.repository import load
from trtbuild.lint.versions import stated_version
from trtbuild.plan.model import Plan
from trtbuild.repository.manifest import read_manifest
from trtbuild.spec import Target

_STUB_SHM_BYTES = 1 << 20  # of a Python instance when it starts


@dataclass(frozen=True)
class Needs:
    """None and 0 are things that nothing says.

    Attributes:
        target: of a repository that trtbuild wrote.
        gpu_bytes: device memory that its plan counted with.
        python_instances: each is a process with a region in /dev/shm.
    """

    container: Container | None = None
    target: Target | None = None
    gpu_bytes: int | None = None
    gpu_name: str | None = None
    sm: str | None = None
    python_instances: int = 0
    shm_bytes: int = 0
    ram_bytes: int = 0
    engines: bool = False


def read_needs(repo: Path | None, container: str | None) -> Needs:
    """Reads a repository, ours or not.

    Raises:
        CatalogError: for an unknown container.
        RepositoryError: if ``repo`` is no folder.
    """
    row = find_container(container) if container is not None else None
    if repo is None:
        return Needs(container=row)
    if not repo.is_dir():
        raise RepositoryError(f"{repo} is no folder", "give the model repository")
    repository = load(repo, stated_version(container=container, trtllm=None))
    if row is None and repository.known is not None:
        row = repository.known.container or _shipping(repository.known.trtllm)
    instances = sum(model.instances for model in repository.readable if model.backend == "python")
    needs = Needs(
        container=row,
        python_instances=instances,
        shm_bytes=instances * _STUB_SHM_BYTES,
        engines=any(model.backend == "tensorrtllm" for model in repository.readable),
    )
    try:
        manifest = read_manifest(repo)
        plan = Plan.model_validate(manifest.plan) if manifest is not None else None
    except (RepositoryError, ValueError):
        plan = None
    return needs if plan is None else _planned(needs, plan)


def _planned(needs: Needs, plan: Plan) -> Needs:
    lines = (*plan.host_ledger, *plan.ledger)
    local = plan.target is Target.LOCAL
    return Needs(
        container=None if local else needs.container,
        target=plan.target,
        gpu_bytes=None if local else plan.gpu.memory_bytes,
        gpu_name=None if local else plan.gpu.name,
        sm=plan.gpu.sm,
        python_instances=needs.python_instances,
        shm_bytes=max(needs.shm_bytes, plan.shm_bytes),
        ram_bytes=sum(line.bytes for line in lines if line.where == "host"),
        engines=needs.engines and not local,
    )


def _shipping(trtllm: str) -> Container | None:
    try:
        return container_of_trtllm(trtllm)
    except CatalogError:
        return None
