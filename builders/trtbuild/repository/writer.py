"""Writes, changes and checks repositories on disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from trtbuild.errors import RepositoryError, in_shell
from trtbuild.plan.model import Plan
from trtbuild.repository import steps
from trtbuild.repository.compose import compose, plan_container, root_files
from trtbuild.repository.contents import Content, Repository, Text
from trtbuild.repository.manifest import MANIFEST, Manifest, make_manifest, read_manifest
from trtbuild.repository.names import NameScheme
from trtbuild.repository.transaction import exclusive
from trtbuild.repository.update import WriteReport, same_content, update
from trtbuild.spec import DeploymentSpec


def write_repository(
    plan: Plan,
    spec: DeploymentSpec,
    output: Path,
    *,
    text_assets: Mapping[str, Path],
    weights: Mapping[str, Path],
    names: NameScheme = "own",
    leave: Collection[str] = (),
    drop_others: bool = False,
    allow_reference: bool = False,
) -> WriteReport:
    """Writes the repository of a plan, or brings an existing one up to date.

    Folders whose content would not change are not touched. Files in a model's folder that were not generated
    (built engines, fetched tokenizers) stay, but engines of another build are moved to ``<output>.engines/``.

    Args:
        text_assets, weights: see ``compose``.
        names: ``classic`` gives one language model NVIDIA's model names.
        leave: models that the repository holds and whose folders stay as they are, byte for byte.
        drop_others: whether models of the existing repository that the plan lacks are removed.
        allow_reference: writes the project's reference deployment, which is refused otherwise.

    Raises:
        RepositoryError: if the folder holds something not ours or is being written to; see ``compose``.
    """
    repository, manifest = compose(
        plan,
        spec,
        text_assets=text_assets,
        weights=weights,
        names=names,
        reference=allow_reference,
        leave=leave,
    )
    repo = _checked_output(output)
    with exclusive(repo) as staging:
        previous = _previous(repo, allow_reference)
        if leave:
            manifest = _with_units_of(manifest, previous, leave)
        _check_foreign(repo, previous, set(repository.folders()))
        others = sorted(set(previous.models) - set(manifest.models)) if previous else []
        if others and not drop_others:
            raise RepositoryError(
                f"{repo} also holds {', '.join(others)}, which this plan leaves out",
                f"add a model: trtbuild add {in_shell(repo)} …",
                *(f"remove the others: trtbuild remove {name} {in_shell(repo)}" for name in others),
                "or write to another folder with --output",
            )
        return update(repo, staging, repository, manifest, previous)


def remove_model(repo: Path, name: str, *, plan: Plan, spec: DeploymentSpec) -> WriteReport:
    """Removes one model's folders and nothing else; ``plan`` and ``spec`` describe what is left.

    Raises:
        RepositoryError: if the repository is not ours or has no such model.
    """
    repo = _checked_output(repo)
    with exclusive(repo) as staging:
        previous = _previous(repo, allow_reference=False)
        if previous is None:
            raise RepositoryError(f"{repo} was not written by trtbuild: it has no {MANIFEST}")
        if name not in previous.models:
            raise RepositoryError(
                f"{repo} has no model {name!r}", "it has " + (", ".join(sorted(previous.models)) or "none")
            )
        left = {key: entry for key, entry in previous.models.items() if key != name}
        container = plan_container(plan)
        files = root_files(plan, spec, container, previous.names)
        repository = Repository((), files)
        base = make_manifest(
            repository,
            plan=plan,
            spec=spec,
            names=previous.names,
            interface=container.interface,
            reference=False,
            local_differences=previous.local_differences,
        )
        manifest = base.model_copy(update={"models": left})
        return update(repo, staging, repository, manifest, previous)


def check_reference(
    repo: Path,
    plan: Plan,
    spec: DeploymentSpec,
    *,
    text_assets: Mapping[str, Path] | None = None,
    weights: Mapping[str, Path] | None = None,
    names: NameScheme = "own",
) -> list[str]:
    """How a reference deployment on disk differs from what would be written now; empty: up to date."""
    repository, manifest = compose(
        plan, spec, text_assets=text_assets or {}, weights=weights or {}, names=names, reference=True
    )
    expected: dict[str, Content] = {
        f"{name}/{path}": content
        for name, folder in repository.folders().items()
        for path, content in folder.files.items()
    }
    expected |= repository.files
    expected[MANIFEST] = Text(manifest.text().encode())
    found = {path.relative_to(repo).as_posix() for path in repo.rglob("*") if path.is_file()}
    differences = [f"{name} is missing" for name in sorted(expected.keys() - found)]
    differences += [f"{name} is not generated" for name in sorted(found - expected.keys())]
    for name in sorted(expected.keys() & found):
        if not same_content(repo / name, expected[name]):
            differences.append(f"{name} differs from what trtbuild writes")
    return differences


def _with_units_of(manifest: Manifest, previous: Manifest | None, leave: Collection[str]) -> Manifest:
    held = previous.models if previous is not None else {}
    gone = sorted(set(leave) - set(held))
    if gone:
        raise RepositoryError(f"{', '.join(gone)} is no longer in the repository", "run the command again")
    return manifest.model_copy(update={"models": {**{name: held[name] for name in leave}, **manifest.models}})


def _checked_output(output: Path) -> Path:
    repo = output.expanduser().resolve()
    if repo.exists() and not repo.is_dir():
        raise RepositoryError(f"{repo} is a file; a repository is a folder", "choose another --output")
    if repo == repo.parent:
        raise RepositoryError("the root of the file system cannot be a model repository")
    inside = next(folder for folder in repo.parents if folder.exists())
    if not inside.is_dir():
        raise RepositoryError(
            f"{inside} is a file, so {repo} cannot be made in it", "choose another --output"
        )
    steps.make_folder(repo.parent)
    return repo


def _previous(repo: Path, allow_reference: bool) -> Manifest | None:
    previous = read_manifest(repo) if repo.is_dir() else None
    if previous is not None and previous.reference and not allow_reference:
        raise RepositoryError(
            f"{repo} is the project's reference deployment, which only `scripts/check --write` changes",
            f"write to another folder: --output {repo.name}_mine",
        )
    return previous


def _check_foreign(repo: Path, previous: Manifest | None, wanted: set[str]) -> None:
    entries = {entry.name for entry in repo.iterdir()} if repo.is_dir() else set()
    if previous is None and entries:
        some = ", ".join(sorted(entries)[:5]) + (" …" if len(entries) > 5 else "")
        raise RepositoryError(
            f"{repo} holds something that trtbuild did not write: {some}",
            "choose an empty or new folder with --output",
        )
    ours = set(previous.folders()) if previous is not None else set()
    for name in sorted(wanted & entries):
        if (repo / name).is_symlink() or not (repo / name).is_dir():
            raise RepositoryError(
                f"{repo / name} should be a model's folder and is a link or a file", "move it out of the way"
            )
        if name not in ours:
            raise RepositoryError(
                f"{repo / name} exists and was not written by trtbuild", "give the model another name"
            )
