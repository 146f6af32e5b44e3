"""The text files of a repository that people write code, settings and launch lines into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trtbuild.lint.findings import Place

MAX_BYTES = 256 << 10
_SETTINGS = (".yaml", ".yml", ".json", ".sh", ".env", ".toml", ".cfg", ".ini", ".py", ".pbtxt", ".txt")
# Large data of public formats, in which nothing is written by hand.
_DATA = frozenset(
    {"tokenizer.json", "vocab.json", "trtbuild.json", "plan.json", "vocab.txt", "labels.txt", "merges.txt"}
)
_DEPTH = 3  # model / version / file


@dataclass(frozen=True)
class TextFile:
    """One file, its text split into lines."""

    file: str
    suffix: str
    text: str

    def place(self, offset: int) -> Place:
        """Line and column of an offset into the text."""
        line = self.text.count("\n", 0, offset) + 1
        return Place(self.file, line, offset - (self.text.rfind("\n", 0, offset) + 1) + 1)


def read_text_files(root: Path) -> tuple[TextFile, ...]:
    """Small text files of the root, the models and their versions."""
    return tuple(_read(root))


def _read(root: Path) -> Iterator[TextFile]:
    for path in sorted(_walk(root, _DEPTH)):
        try:
            if path.stat().st_size > MAX_BYTES:
                continue
            raw = path.read_bytes()
        except OSError:
            continue
        if b"\0" not in raw:
            yield TextFile(
                path.relative_to(root).as_posix(), path.suffix, raw.decode("utf-8", errors="replace")
            )


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if os.path.isdir(entry):  # noqa: PTH112 - pathlib raises on a loop of links before 3.14
            if depth > 1 and not entry.is_symlink() and not entry.name.startswith("."):
                yield from _walk(entry, depth - 1)
        elif _is_written(entry) and os.path.isfile(entry):  # noqa: PTH113
            yield entry


def _is_written(path: Path) -> bool:
    if path.name in _DATA:
        return False
    return path.suffix in _SETTINGS or path.name.startswith(
        ("Dockerfile", "docker-compose", "compose", ".env")
    )
