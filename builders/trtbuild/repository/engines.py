"""Compiled engines outlive a change of plan: another build's are set aside, and come back with their plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trtbuild.repository import steps
from trtbuild.repository.contents import ModelUnit
from trtbuild.repository.manifest import Manifest
from trtbuild.repository.names import llm_names

# What a build puts into an engine's version folder.
PRODUCTS = (
    "1/config.json",
    "1/rank*",
    "1/quant_cfg.json",
    "1/lora/*/*",
    "1/xgrammar_tokenizer_info.json",
    "1/checkpoint/*",
    "1/checkpoint.key",
)


@dataclass(frozen=True)
class Turnover:
    """What happens to the compiled engine of one model.

    Attributes:
        moved: folder → where its outdated files lie now.
        gone: files (relative to ``old``) that do not stay in the folder ``old``.
        back: file (relative to ``new``) → where it lies, for files that come into the folder ``new``.
    """

    old: str = ""
    new: str = ""
    moved: Mapping[str, Path] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    back: Mapping[str, Path] = field(default_factory=dict)

    def outdated(self, folder: str) -> tuple[str, ...]:
        return self.gone if folder == self.old else ()

    def returning(self, folder: str) -> Mapping[str, Path]:
        return self.back if folder == self.new else {}


def turn_over(repo: Path, unit: ModelUnit, manifest: Manifest, previous: Manifest | None) -> Turnover:
    """Sets a model's engine aside if it was built for something else, and finds one built for this."""
    entry = previous.models.get(unit.name) if previous is not None else None
    old_key = entry.engine_key if entry is not None else None
    new = llm_names(unit.name, manifest.names).engine
    old = llm_names(unit.name, previous.names).engine if previous is not None else new
    if (old, old_key) == (new, unit.engine_key):
        return Turnover()
    moved: dict[str, Path] = {}
    gone: tuple[str, ...] = ()
    if old_key is not None and (gone := _products(repo / old)):
        moved[old] = _set_aside(repo, unit.name, old_key, old, gone)
    back = _set_aside_before(repo, unit.name, unit.engine_key) if unit.engine_key is not None else {}
    if old_key == unit.engine_key:
        moved = {}  # only its folder has another name
    return Turnover(old, new, moved, gone, back)


def _place(repo: Path, name: str, key: str) -> Path:
    """Beside the repository, because every folder inside is a model for Triton."""
    return repo.parent / f"{repo.name}.engines" / f"{name}-{key[:12]}"


def _products(path: Path) -> tuple[str, ...]:
    found = {file for pattern in PRODUCTS for file in path.glob(pattern) if file.is_file()}
    return tuple(sorted(file.relative_to(path).as_posix() for file in found))


def _set_aside(repo: Path, name: str, key: str, folder: str, files: tuple[str, ...]) -> Path:
    place = _place(repo, name, key)
    if not all(_is_same(repo / folder / file, place / file) for file in files):
        partial = place.with_name(f"{place.name}.partial")
        steps.remove_tree(partial)
        for file in files:
            steps.make_folder((partial / file).parent)
            steps.link_file(repo / folder / file, partial / file)
        steps.remove_tree(place)
        steps.move(partial, place)
    return place


def _is_same(one: Path, other: Path) -> bool:
    """Of the same build; a copy keeps size and time."""
    if not other.is_file():
        return False
    left, right = one.stat(), other.stat()
    return (left.st_size, left.st_mtime_ns) == (right.st_size, right.st_mtime_ns)


def _set_aside_before(repo: Path, name: str, key: str) -> dict[str, Path]:
    place = _place(repo, name, key)
    files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else []
    return {path.relative_to(place).as_posix(): path for path in files}
