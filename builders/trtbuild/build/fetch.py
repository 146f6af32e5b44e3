"""Where weights are fetched from, and at which commit: pinned before the build, so that a key names
content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trtbuild.build.checkpoints import read_checkpoint
from trtbuild.build.commands import Step
from trtbuild.build.jobs import Job
from trtbuild.errors import ModelSourceError

_COMMIT = re.compile(r"[0-9a-f]{40}")


Ask = Callable[[str, str], str]
"""Repository and revision → commit; raises ConnectionError with what the hub's client printed."""


def pin_revision(repository: str, revision: str, *, ask: Ask, offline: bool = False) -> str:
    """Returns the commit that ``revision`` (branch, tag or commit) names on the hub.

    Args:
        offline: ask nobody; ``revision`` must then be a commit.

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
    try:
        return ask(repository, revision)
    except ConnectionError as error:
        raise _translated(repository, revision, str(error)) from error


def pinned(job: Job, *, ask: Ask, memo: Path | None = None, offline: bool = False) -> Job:
    """Returns ``job`` with its fetch at a commit; unchanged if it fetches nothing.

    Args:
        memo: file that remembers what was pinned, so that a build that goes on keeps its weights;
            ``build_engines.sh`` reads and writes the same.

    Raises:
        ModelSourceError: see ``pin_revision``.
    """
    revision = job.recipe.revision
    if revision is None:
        return job
    asked = f"{job.llm.source} {revision} "
    remembered = _read(memo)
    if remembered.startswith(asked):
        commit = remembered.removeprefix(asked)
    else:
        known = cached_commit(job.llm.source, revision) if offline or is_offline() else None
        commit = known or pin_revision(job.llm.source, revision, ask=ask, offline=offline)
        if memo is not None:
            memo.parent.mkdir(parents=True, exist_ok=True)
            partial = memo.with_suffix(".partial")
            partial.write_text(f"{asked}{commit}\n", encoding="utf-8")
            partial.replace(memo)
    commands = tuple(
        replace(command, argv=tuple(commit if word == revision else word for word in command.argv))
        if command.step is Step.FETCH
        else command
        for command in job.commands
    )
    return replace(job, commands=commands, recipe=replace(job.recipe, revision=commit))


def from_cache(job: Job) -> Job:
    """Returns a pinned ``job`` that takes its weights from the local hub cache where they are whole there."""
    commit = job.recipe.revision
    snapshot = cached_snapshot(job.llm.source, commit) if commit is not None else None
    if snapshot is None:
        return job
    try:
        read_checkpoint(snapshot)
    except ModelSourceError:
        return job  # a download that was never finished
    return replace(job, folder=snapshot, commands=tuple(c for c in job.commands if c.step is not Step.FETCH))


def cached_commit(repository: str, revision: str, *, cache: Path | None = None) -> str | None:
    """The commit that a revision named when it was last fetched into the local hub cache; None: never."""
    reference = _cached(repository, cache) / "refs" / revision
    return _read(reference) or None


def cached_snapshot(repository: str, revision: str, *, cache: Path | None = None) -> Path | None:
    """The folder of a model in the local hub cache, None if it is not there; nothing is asked of the
    network.
    """
    commit = cached_commit(repository, revision, cache=cache) or revision
    snapshot = _cached(repository, cache) / "snapshots" / commit
    return snapshot if (snapshot / "config.json").is_file() else None


def _cached(repository: str, cache: Path | None) -> Path:
    return (cache or _cache_folder()) / f"models--{repository.replace('/', '--')}"


def _read(path: Path | None) -> str:
    try:
        return "" if path is None else path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def is_offline() -> bool:
    """Whether the environment says that the hub is not to be asked."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def _cache_folder() -> Path:
    home = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub")


def _translated(repository: str, revision: str, printed: str) -> ModelSourceError:
    """The errors of the hub's client by the names of their classes, which its last lines hold."""
    if "GatedRepoError" in printed:
        return ModelSourceError(
            f"{repository} is gated", "accept its licence on the hub and put a token into HF_TOKEN"
        )
    if "RepositoryNotFoundError" in printed:
        return ModelSourceError(
            f"the hub has no repository {repository}, or it is private", "check the name", "set HF_TOKEN"
        )
    if "RevisionNotFoundError" in printed:
        return ModelSourceError(f"{repository} has no revision {revision!r}", "--revision main")
    last = printed.strip().splitlines()[-1:] or ["no answer"]
    return ModelSourceError(
        f"the hub cannot be asked about {repository}: {last[0]}",
        f"fetch it elsewhere (hf download {repository} --local-dir FOLDER) and give --weights FOLDER",
    )
