"""A model without a version folder that Triton takes.

Versions are folders whose names are whole numbers without a leading zero; others are ignored. An ensemble
needs one too, empty (git does not keep empty folders: put a .gitkeep into it).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.model import lost_links
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.rules.version_name import looks_like_a_version

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Models that have no numeric folder, and policies that name versions that are not there."""
    for model in repository.readable:
        for link in lost_links(model.path):
            yield Found(
                Place(f"{model.name}/{link}"),
                "the link cannot be followed",
                "Triton cannot look into the model's folder, and does not load it",
                "mend or remove the link",
            )
        numbers = model.numbered
        others = [
            version for version in model.versions if version not in numbers and not version.startswith(".")
        ]
        if not numbers:
            beside = f"; there is {', '.join(map(repr, others))}" if others else ""
            yield Found(
                model.at(None),
                f"there is no version folder{beside}",
                "Triton ignores folders whose names are no whole numbers, and finds no version to load",
                _remedy(model.name, others),
            )
            continue
        for wanted in model.config.all("version_policy") if model.config else []:
            for name in wanted.message.all("specific") if wanted.message else []:
                for item in name.message.all("versions") if name.message else []:
                    if item.text not in numbers:
                        yield Found(
                            model.at(item),
                            f"version_policy asks for version {item.text}; there is {', '.join(numbers)}",
                            "the version cannot be loaded",
                            "name versions that are there",
                        )


def _remedy(model: str, others: list[str]) -> str:
    """One command: the folder that was meant gets the name, or an empty one is made."""
    version, meant = shlex.quote(f"{model}/1"), [name for name in others if looks_like_a_version(name)]
    if len(meant) == 1:
        return f"mv -- {shlex.quote(f'{model}/{meant[0]}')} {version}"
    return f"mkdir {version}"
