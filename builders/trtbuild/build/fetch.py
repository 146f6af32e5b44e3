"""Where weights are fetched from, and at which commit: pinned before the build, so that a key names
content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trtbuild.build.commands import Step
from trtbuild.build.jobs import Job
from trtbuild.errors import ModelSourceError

_COMMIT = re.compile(r"[0-9a-f]{40}")


def pin_revision(
    repository: str, revision: str, *, offline: bool = False, model_info: Callable[..., Any] | None = None
) -> str:
    """Returns the commit that ``revision`` (branch, tag or commit) names on the hub.

    Args:
        offline: ask nobody; ``revision`` must then be a commit.
        model_info: ``huggingface_hub.model_info``, replaced in tests.

    Raises:
        ModelSourceError: the hub cannot be asked, or has no such repository, or it is gated.
    """
    if _COMMIT.fullmatch(revision):
        return revision
    if offline or is_offline():
        raise ModelSourceError(
            f"{repository}: offline, so what {revision!r} means cannot be asked",
            f"fetch it elsewhere (hf download {repository} --local-dir FOLDER) and give --weights FOLDER",
            "name the commit with --revision",
        )
    ask = model_info or _model_info()
    try:
        return str(ask(repository, revision=revision).sha)
    except Exception as error:
        raise _translated(repository, revision, error) from error


def pinned(job: Job, *, offline: bool = False, model_info: Callable[..., Any] | None = None) -> Job:
    """Returns ``job`` with its fetch at a commit; unchanged if it fetches nothing.

    Raises:
        ModelSourceError: see ``pin_revision``.
    """
    revision = job.recipe.revision
    if revision is None:
        return job
    commit = pin_revision(job.llm.source, revision, offline=offline, model_info=model_info)
    commands = tuple(
        replace(command, argv=tuple(commit if word == revision else word for word in command.argv))
        if command.step is Step.FETCH
        else command
        for command in job.commands
    )
    return replace(job, commands=commands, recipe=replace(job.recipe, revision=commit))


def cached_snapshot(repository: str, revision: str, *, cache: Path | None = None) -> Path | None:
    """The folder of a model in the local hub cache, None if it is not there; nothing is asked of the
    network.
    """
    folder = (cache or _cache_folder()) / f"models--{repository.replace('/', '--')}"
    reference = folder / "refs" / revision
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    snapshot = folder / "snapshots" / commit
    return snapshot if (snapshot / "config.json").is_file() else None


def is_offline() -> bool:
    """Whether the environment says that the hub is not to be asked."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def _cache_folder() -> Path:
    home = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub")


def _model_info() -> Callable[..., Any]:
    try:
        from huggingface_hub import model_info
    except ImportError as error:
        raise ModelSourceError(
            "fetching needs the package huggingface_hub", "pip install 'trtbuild[build]'"
        ) from error
    return model_info


def _translated(repository: str, revision: str, error: Exception) -> ModelSourceError:
    """The hub's errors by the names of their classes, so that none of its versions is needed for them."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if "GatedRepoError" in names:
        return ModelSourceError(
            f"{repository} is gated", "accept its licence on the hub and put a token into HF_TOKEN"
        )
    if "RepositoryNotFoundError" in names:
        return ModelSourceError(
            f"the hub has no repository {repository}, or it is private", "check the name", "set HF_TOKEN"
        )
    if "RevisionNotFoundError" in names:
        return ModelSourceError(f"{repository} has no revision {revision!r}", "--revision main")
    return ModelSourceError(
        f"the hub cannot be asked about {repository}: {type(error).__name__}: {error}",
        f"fetch it elsewhere (hf download {repository} --local-dir FOLDER) and give --weights FOLDER",
    )
