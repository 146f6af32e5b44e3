"""Brings a repository on disk to what was composed: what differs is staged beside it, then moved in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trtbuild.repository import engines, steps
from trtbuild.repository.contents import Content, Linked, ModelFolder, Repository, Text, file_sha256
from trtbuild.repository.manifest import MANIFEST, Manifest
from trtbuild.repository.transaction import Change, commit

_EXECUTABLE = (".sh",)


@dataclass(frozen=True)
class WriteReport:
    """What a write did, by model folder. ``moved_engines``: folder → where its outdated engines lie now."""

    repo: Path
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    kept_products: tuple[str, ...]
    moved_engines: dict[str, Path]


def update(
    repo: Path, staging: Path, repository: Repository, manifest: Manifest, previous: Manifest | None
) -> WriteReport:
    """Stages what differs, commits it, and says what happened."""
    old_folders = previous.folders() if previous else {}
    written: list[str] = []
    kept: list[str] = []
    moved: dict[str, Path] = {}
    for unit in repository.units:
        turnover = engines.turn_over(repo, unit, manifest, previous)
        moved |= turnover.moved
        for folder in unit.folders:
            name, generated = folder.name, old_folders.get(folder.name, {})
            outdated, returning = turnover.outdated(name), turnover.returning(name)
            if _is_current(repo / name, folder, generated) and not outdated and not returning:
                continue
            fresh = staging / "new" / name
            kept += _stage(repo / name, fresh, folder, leave={*generated, *outdated, *folder.derived})
            for file, source in returning.items():
                steps.make_folder((fresh / file).parent)
                steps.link_file(source, fresh / file)
                kept.append(f"{name}/{file}")
            written.append(name)
    change = Change(
        folders=tuple(written),
        removed_folders=tuple(sorted(set(old_folders) - set(manifest.folders()))),
        files=_stage_files(repo, staging, {**repository.files, MANIFEST: Text(manifest.text().encode())}),
        removed_files=tuple(sorted(set(previous.files if previous else ()) - set(repository.files))),
    )
    if change:
        commit(repo, staging, change)
    unchanged = tuple(name for name in manifest.folders() if name not in written)
    return WriteReport(repo, tuple(written), unchanged, change.removed_folders, tuple(kept), moved)


def _stage_files(repo: Path, staging: Path, files: Mapping[str, Text]) -> tuple[str, ...]:
    """Stages the files beside the models that differ; the order stays, the manifest goes last."""
    changed = [name for name, content in files.items() if not same_content(repo / name, content)]
    for name in changed:
        steps.make_folder(staging / "files")
        steps.write_file(staging / "files" / name, files[name].data, executable=name.endswith(_EXECUTABLE))
    return tuple(changed)


def _is_current(path: Path, folder: ModelFolder, generated: Mapping[str, str]) -> bool:
    if not path.is_dir() or any(file not in folder.files for file in generated if (path / file).exists()):
        return False
    return all(same_content(path / file, content) for file, content in folder.files.items())


def _stage(path: Path, fresh: Path, folder: ModelFolder, *, leave: set[str]) -> list[str]:
    """Makes the whole new folder: unchanged and foreign files as hard links, so that their times stay.

    Args:
        leave: files of the present folder that are not taken over unless they are generated again.
    """
    for file, content in folder.files.items():
        steps.make_folder((fresh / file).parent)
        if same_content(path / file, content):
            steps.link_file(path / file, fresh / file)
        elif isinstance(content, Linked):
            steps.link_file(content.source.resolve(), fresh / file)
        else:
            steps.write_file(fresh / file, content.data)
    kept = []
    for old in sorted(path.rglob("*")) if path.is_dir() else ():
        file = old.relative_to(path).as_posix()
        if (old.is_dir() and not old.is_symlink()) or "__pycache__" in old.parts:
            continue
        if file not in folder.files and file not in leave:
            steps.make_folder((fresh / file).parent)
            steps.link_file(old, fresh / file)
            kept.append(f"{folder.name}/{file}")
    return kept


def same_content(path: Path, content: Content) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    if isinstance(content, Text):
        return path.stat().st_size == len(content.data) and path.read_bytes() == content.data
    if path.samefile(content.source):
        return True
    return path.stat().st_size == content.source.stat().st_size and file_sha256(path) == content.sha256()
