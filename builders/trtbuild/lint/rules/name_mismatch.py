"""`name` is not the folder's name.

Triton refuses a model whose config names it otherwise than its folder. The name may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Edit, Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Configs under another name."""
    for model in repository.readable:
        name = model.field("name")
        if name is None or name.text == model.name or "${" in name.text:
            continue
        place = model.at(name)
        safe = (
            model.name.replace("-", "").replace("_", "").replace(".", "").isalnum() and model.name.isascii()
        )
        yield Found(
            place,
            f"name is {name.text!r}, and the folder is {model.name!r}",
            "Triton refuses a model whose folder has another name",
            f'write name: "{model.name}", or rename the folder',
            edit=Edit(place, name.text, model.name) if safe else None,
        )
