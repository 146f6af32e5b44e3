"""An input or output without name, type or dimensions.

Backends that read them from the model's file complete a config; ensembles, the TensorRT-LLM backend and
Python models without `auto_complete_config` do not, and Triton refuses what is missing then (core,
model_config_utils.cc, `ValidateIOShape`). A tensor without a name is refused everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_as_written

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Every declared tensor."""
    for model in repository.readable:
        needed = ("name", "data_type", "dims") if is_as_written(model) else ("name",)
        for entry in (*model.all("input"), *model.all("output")):
            if entry.message is None:
                continue
            name = entry.message.get("name")
            missing = [
                key
                for key in needed
                if (field := entry.message.get(key)) is None or field.text in ("", "TYPE_INVALID")
            ]
            if missing:
                label = f"{entry.name} {name.text!r}" if name is not None else f"an {entry.name}"
                yield Found(
                    model.at(name or entry),
                    f"{label} has no {' and no '.join(missing)}",
                    "nothing completes it, and Triton refuses the model",
                    f"write {', '.join(missing)}",
                )
