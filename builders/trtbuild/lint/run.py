"""Lints a repository: every rule over everything, in the order of the files."""

from __future__ import annotations

from pathlib import Path

from trtbuild.catalog.gpus import find_gpu
from trtbuild.errors import RepositoryError
from trtbuild.lint.findings import LintFinding, ordered
from trtbuild.lint.repository import load
from trtbuild.lint.rule import all_rules
from trtbuild.lint.versions import stated_version


def lint(
    root: Path, *, container: str | None = None, trtllm: str | None = None, gpu: str | None = None
) -> list[LintFinding]:
    """What is wrong with the repository in ``root``.

    Args:
        container: release of the container that will serve it, such as 25.10.
        trtllm: the TensorRT-LLM version instead; without either, the repository's stamp or its engines say
            it, and where nothing does, only what holds for all versions is told.

        gpu: name of the GPU that it will run on; decides whether the engines run there, and fit together.

    Raises:
        RepositoryError: if ``root`` is no folder.
        CatalogError: for an unknown container, version or GPU.
    """
    if not root.is_dir():
        raise RepositoryError(
            f"{root} is no folder", "give the folder that tritonserver's --model-repository gets"
        )
    card = find_gpu(gpu).gpu if gpu is not None else None
    repository = load(root, stated_version(container=container, trtllm=trtllm), card)
    return ordered(finding for rule in all_rules() for finding in rule.run(repository))
