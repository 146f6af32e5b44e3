"""Compiled engines outlive a change of plan: another build's are set aside, and come back with their plan."""

from __future__ import annotations

from pathlib import Path

from trtbuild.repository import steps
from trtbuild.repository.contents import ModelFolder


def _place(repo: Path, name: str, key: str) -> Path:
    """Beside the repository, because every folder inside is a model for Triton."""
    return repo.parent / f"{repo.name}.engines" / f"{name}-{key[:12]}"


def products(path: Path, folder: ModelFolder) -> list[str]:
    """Files in a model's folder, relative to it, that a build put there."""
    found = {file for pattern in folder.products for file in path.glob(pattern) if file.is_file()}
    names = {file.relative_to(path).as_posix() for file in found}
    return sorted(names - set(folder.files))


def set_aside(repo: Path, name: str, key: str, files: list[str]) -> Path:
    """Keeps the engine with this key, and returns where; compiling it took long."""
    place = _place(repo, name, key)
    if not place.exists():
        partial = place.with_name(f"{place.name}.partial")
        steps.remove_tree(partial)
        for file in files:
            steps.make_folder((partial / file).parent)
            steps.link_file(repo / name / file, partial / file)
        steps.move(partial, place)
    return place


def set_aside_before(repo: Path, name: str, key: str) -> dict[str, Path]:
    """File relative to the model's folder → where it lies, for an engine with this key that was set aside."""
    place = _place(repo, name, key)
    files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else []
    return {path.relative_to(place).as_posix(): path for path in files}
