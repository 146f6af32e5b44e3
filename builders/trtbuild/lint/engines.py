"""Where an engine's files are, and what its config.json says, with lines."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from trtbuild.lint.findings import Place

CONFIG = "config.json"
MAX_BYTES = 4 << 20


@dataclass(frozen=True)
class EngineFiles:
    """The folder that ``gpt_model_path`` means, as far as it is on this machine.

    Attributes:
        file: its config.json, relative to the repository where it is inside.
        raw: the text of config.json; None where it is missing.
        config: what it holds; None where that is no JSON object.
        planned: an empty place that a build will fill.
    """

    folder: Path
    file: str
    raw: str | None
    config: dict[str, Any] | None
    planned: bool

    def get(self, path: str) -> Any:
        """The value at a dotted path, or None."""
        value: Any = self.config
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def number(self, path: str) -> int | None:
        """A whole number at a dotted path, or None."""
        value = self.get(path)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def at(self, key: str) -> Place:
        """The first line with this key."""
        for number, text in enumerate((self.raw or "").splitlines(), 1):
            if f'"{key}"' in text:
                return Place(self.file, number)
        return Place(self.file)

    @property
    def version(self) -> str:
        """The version that built it; empty where it does not say."""
        return str(self.get("version") or "")

    @property
    def world_size(self) -> int:
        """Ranks that it was built for."""
        mapping = self.get("pretrained_config.mapping") or {}
        sizes = [
            mapping.get(key, 1) if isinstance(mapping, dict) else 1
            for key in ("tp_size", "pp_size", "cp_size")
        ]
        total = 1
        for size in sizes:
            total *= size if isinstance(size, int) and size > 0 else 1
        return total

    @property
    def ranks(self) -> int:
        """Engine files that are there."""
        return len(list(self.folder.glob("rank*.engine")))


def locate(root: Path, path: str) -> Path | None:
    """The folder that a path in a config means, if it is on this machine.

    Tried: the path itself, below the repository and its parent (the server's working folder), and for a
    path of a container its last two parts, ``MODEL/1``, in the repository.
    """
    if not path or "${" in path or "\0" in path:
        return None
    pure = PurePosixPath(path)
    candidates = [Path(path)] if pure.is_absolute() else [root / path, root.parent / path]
    if len(pure.parts) >= 2 and pure.parts[-1].isdecimal():
        candidates.append(root / pure.parts[-2] / pure.parts[-1])
    return next((candidate for candidate in candidates if os.path.isdir(candidate)), None)  # noqa: PTH112


def read_engine(root: Path, path: str, *, ours: bool) -> EngineFiles | None:
    """Reads the engine folder at ``path``; None where it is not on this machine."""
    folder = locate(root, path)
    if folder is None:
        return None
    raw: str | None = None
    config = None
    try:
        inside = folder.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        inside = folder.as_posix()
    try:
        names = [entry.name for entry in folder.iterdir()]
        if CONFIG in names and (folder / CONFIG).is_file() and (folder / CONFIG).stat().st_size <= MAX_BYTES:
            raw = (folder / CONFIG).read_text(encoding="utf-8", errors="replace")
            config = json.loads(raw)
    except OSError:
        return None
    except (ValueError, RecursionError):
        config = None
    planned = set(names) <= {".gitkeep"} and (ours or bool(names))
    return EngineFiles(
        folder, f"{inside}/{CONFIG}", raw, config if isinstance(config, dict) else None, planned
    )
