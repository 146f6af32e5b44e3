"""A model without a version folder that Triton takes.

Versions are folders whose names are whole numbers without a leading zero; others are ignored. An ensemble
needs one too, empty (git does not keep empty folders: put a .gitkeep into it).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.model import lost_links
from trtbuild.lint.pbtxt import Field, Kind
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
        policy = model.field("version_policy")
        if not model.loaded and not _named(policy) and not _is_unfilled(policy):
            yield Found(
                model.at(policy),
                "version_policy loads no version",
                "latest without num_versions and specific without versions are none: the model does not load",
                "write latest { num_versions: 1 }, or leave version_policy out",
            )
        for wanted in model.config.all("version_policy") if model.config else []:
            for name in wanted.message.all("specific") if wanted.message else []:
                for item in name.message.all("versions") if name.message else []:
                    if item.text not in numbers:
                        yield Found(
                            model.at(item),
                            f"version_policy asks for version {item.text}; there is {', '.join(numbers)}",
                            "Triton loads the others, and says so in a log line only"
                            if model.loaded
                            else "no version is left to load, and the model does not load",
                            "name versions that are there",
                            severity="warning" if model.loaded else None,
                        )


def _named(policy: Field | None) -> bool:
    """Whether versions are named, each of which is looked at by itself."""
    specific = policy.message.get("specific") if policy is not None and policy.message else None
    return specific is not None and specific.message is not None and bool(specific.message.all("versions"))


def _is_unfilled(policy: Field | None) -> bool:
    fields = policy.message.walk() if policy is not None and policy.message else ()
    return any(item.kind is Kind.PLACEHOLDER for _, item in fields)


def _remedy(model: str, others: list[str]) -> str:
    """One command: the folder that was meant gets the name, or an empty one is made."""
    version, meant = shlex.quote(f"{model}/1"), [name for name in others if looks_like_a_version(name)]
    if len(meant) == 1:
        return f"mv -- {shlex.quote(f'{model}/{meant[0]}')} {version}"
    return f"mkdir {version}"
