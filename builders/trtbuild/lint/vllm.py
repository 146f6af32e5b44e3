"""A model of the vLLM backend: ``model.json`` in its version folder, and the GPUs of its instances."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trtbuild.lint.findings import Place
from trtbuild.lint.model import ModelFolder

MODEL_JSON = "model.json"


@dataclass(frozen=True)
class EngineArgs:
    """The arguments of ``AsyncEngineArgs``; ``values`` is None where the file is no JSON object.

    Attributes:
        problem: why it is none, and ``bad_line`` where.
    """

    file: str
    text: str
    values: dict[str, Any] | None
    problem: str = ""
    bad_line: int = 0

    def at(self, key: str) -> Place:
        """The line of a key."""
        offset = self.text.find(json.dumps(key))
        return Place(self.file, self.text.count("\n", 0, offset) + 1 if offset >= 0 else 0)

    @property
    def ranks(self) -> int:
        """GPUs that one instance takes."""
        sizes = [(self.values or {}).get(f"{kind}_parallel_size", 1) for kind in ("tensor", "pipeline")]
        whole = [size if isinstance(size, int) and size > 0 else 1 for size in sizes]
        return whole[0] * whole[1]


def read_engine_args(model: ModelFolder) -> Iterator[EngineArgs]:
    """model.json of every version that is loaded; those that cannot be opened are left out."""
    for version in model.loaded:
        path = model.path / version / MODEL_JSON
        try:
            raw = path.read_bytes()
        except OSError:
            continue
        yield _parse(f"{model.name}/{version}/{MODEL_JSON}", raw)


def _parse(file: str, raw: bytes) -> EngineArgs:
    text = raw.decode("utf-8", errors="replace")
    try:
        values = json.loads(raw.decode("utf-8"))
    except json.JSONDecodeError as error:
        return EngineArgs(file, text, None, error.msg, error.lineno)
    except (ValueError, RecursionError) as error:
        return EngineArgs(file, text, None, str(error))
    if not isinstance(values, dict):
        return EngineArgs(file, text, None, "it holds no object")
    return EngineArgs(file, text, values)


def gpus(model: ModelFolder, args: EngineArgs) -> list[str]:
    """The GPUs of all instances, each as often as it is used.

    Instances of KIND_MODEL all begin on the first one (server issue 6855).
    """
    found = []
    for group in model.all("instance_group"):
        fields = group.message
        count = fields.get("count") if fields is not None else None
        kind = fields.get("kind") if fields is not None else None
        is_gpu = fields is not None and kind is not None and kind.text == "KIND_GPU"
        named = [item.text for item in fields.all("gpus")] if fields is not None and is_gpu else []
        for gpu in named or map(str, range(args.ranks)):
            found += [gpu] * min((count.number if count is not None else None) or 1, 64)
    return found or [str(rank) for rank in range(args.ranks)]
