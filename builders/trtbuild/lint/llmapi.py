"""``model.yaml`` of an LLM API model: its settings, with lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trtbuild.lint.findings import Place
from trtbuild.lint.model import ModelFolder


@dataclass(frozen=True)
class Settings:
    """One model.yaml. ``values`` is None where it is not YAML (``bad_line``: where) or no mapping."""

    file: str
    text: str
    values: dict[str, Any] | None
    bad_line: int | None = None

    def at(self, key: str) -> Place:
        """The first line that begins with a key; the file where none does."""
        lines = enumerate(self.text.splitlines(), 1)
        quoted = (f"{key}:", f'"{key}":')
        return Place(self.file, next((n for n, line in lines if line.lstrip(" {,-").startswith(quoted)), 0))

    def section(self, key: str) -> dict[str, Any]:
        """The mapping under a key; empty where there is none."""
        value = (self.values or {}).get(key)
        return value if isinstance(value, dict) else {}


def read_settings(model: ModelFolder) -> Iterator[Settings]:
    """The settings of every version, the oldest first."""
    import yaml

    for version in sorted(model.numbered, key=int):
        path = model.path / version / "model.yaml"
        if not path.is_file():
            continue
        file = f"{model.name}/{version}/model.yaml"
        text = ""
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
            values = yaml.safe_load(text)
        except (OSError, yaml.YAMLError, RecursionError, ValueError) as error:
            mark = getattr(error, "problem_mark", None)
            yield Settings(file, text, None, mark.line + 1 if mark else 0)
        else:
            yield Settings(file, text, values if isinstance(values, dict) else None)
