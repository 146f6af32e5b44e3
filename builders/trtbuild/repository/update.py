"""Brings a repository on disk to what was composed: what differs is staged beside it, then moved in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trtbuild.repository import steps
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
    keys = {folder: unit.engine_key for unit in manifest.models.values() for folder in unit.folders}
    old_keys = {
        f: unit.engine_key for unit in (previous.models.values() if previous else ()) for f in unit.folders
    }
    written, kept, moved = [], [], {}
    for name, folder in repository.folders().items():
        generated = old_folders.get(name, {})
        stale = _products(repo / name, folder) if old_keys.get(name, keys[name]) != keys[name] else []
        if stale and folder.config.backend == "tensorrtllm":
            moved[name] = _set_aside(repo, name, str(old_keys[name]), stale)
        else:
            stale = []
        if _is_current(repo / name, folder, generated) and not stale:
            continue
        kept += _stage(
            repo / name, staging / "new" / name, folder, generated, leave={str(path) for path in stale}
        )
        written.append(name)
    files = {**repository.files, MANIFEST: Text(manifest.text().encode())}  # the manifest goes last
    changed = [name for name, content in files.items() if not same_content(repo / name, content)]
    for name in changed:
        steps.make_folder(staging / "files")
        steps.write_file(staging / "files" / name, files[name].data, executable=name.endswith(_EXECUTABLE))
    removed = sorted(set(old_folders) - set(manifest.folders()))
    change = Change(
        folders=tuple(written),
        removed_folders=tuple(removed),
        files=tuple(changed),
        removed_files=tuple(sorted(set(previous.files if previous else ()) - set(files))),
    )
    if change:
        commit(repo, staging, change)
    unchanged = tuple(name for name in manifest.folders() if name not in written)
    return WriteReport(repo, tuple(written), unchanged, tuple(removed), tuple(kept), moved)


def _products(path: Path, folder: ModelFolder) -> list[Path]:
    """Files, relative to the model's folder, that a build put there."""
    found = {
        file.relative_to(path) for pattern in folder.products for file in path.glob(pattern) if file.is_file()
    }
    return sorted(file for file in found if file.as_posix() not in folder.files)


def _set_aside(repo: Path, name: str, key: str, files: list[Path]) -> Path:
    """Keeps engines of another build beside the repository: compiling them took long."""
    place = repo.parent / f"{repo.name}.engines" / f"{name}-{key[:12]}"
    if not place.exists():
        partial = place.with_name(f"{place.name}.partial")
        steps.remove_tree(partial)
        for file in files:
            steps.make_folder((partial / file).parent)
            steps.link_file(repo / name / file, partial / file)
        steps.move(partial, place)
    return place


def _is_current(path: Path, folder: ModelFolder, generated: Mapping[str, str]) -> bool:
    if not path.is_dir() or any(file not in folder.files for file in generated if (path / file).exists()):
        return False
    return all(same_content(path / file, content) for file, content in folder.files.items())


def _stage(
    path: Path, fresh: Path, folder: ModelFolder, generated: Mapping[str, str], leave: set[str]
) -> list[str]:
    """Makes the whole new folder: unchanged and foreign files as hard links, so that their times stay."""
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
        if file in folder.files or file in generated or file in leave:
            continue
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
