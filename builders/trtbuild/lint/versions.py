"""Which TensorRT-LLM a repository is for: said on the command line, by its stamp, or by an engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtbuild.catalog.versions import (
    Container,
    container_of_trtllm,
    containers,
    find_container,
    interface,
)
from trtbuild.errors import CatalogError
from trtbuild.lint.findings import Found, Place

MANIFEST = "trtbuild.json"
_RELEASE = re.compile(r"\d+\.\d+(?:\.\d+)?(?:\.post\d+)?")


@dataclass(frozen=True)
class Known:
    """A version that is known, and from where.

    Attributes:
        interfaces: row sets of the interface table that it may mean: containers were built before and after
            the tag of their version. Empty for a version outside the table.
        container: the release, where it is known itself.
    """

    trtllm: str
    interfaces: tuple[str, ...]
    container: Container | None
    source: str
    place: Place


def stated_version(*, container: str | None, trtllm: str | None) -> Known | None:
    """What the command line says.

    Raises:
        CatalogError: for an unknown container or version.
    """
    if container is not None:
        row = find_container(container)
        if trtllm is not None and trtllm != row.trtllm:
            raise CatalogError(
                f"container {container} ships TensorRT-LLM {row.trtllm}, not {trtllm}", "give one of the two"
            )
        return Known(row.trtllm, (row.interface,), row, f"--container {container}", Place("."))
    if trtllm is None:
        return None
    row = container_of_trtllm(trtllm)
    return Known(row.trtllm, _interfaces(row.trtllm), None, f"--trtllm {trtllm}", Place("."))


def stamped_version(root: Path) -> Known | None:
    """What ``trtbuild.json`` says; None where there is none, or none that can be read."""
    try:
        raw = (root / MANIFEST).read_text(encoding="utf-8")
        document: Any = json.loads(raw)
        version = str(document["interface"])
        interface(version, "tensorrt_llm")
        release = document["plan"].get("container")
        row = find_container(release) if release else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, CatalogError):
        return None
    line = next((n for n, text in enumerate(raw.splitlines(), 1) if '"container"' in text), 0)
    trtllm = row.trtllm if row is not None else version
    return Known(trtllm, (version,), row, MANIFEST, Place(MANIFEST, line))


def engine_version(text: str, place: Place) -> Known | None:
    """What an engine's config.json says: ``0.12.0.dev2024080600`` counts as 0.12.0."""
    match = _RELEASE.match(text)
    if match is None:
        return None
    return Known(match.group(), _interfaces(match.group()), None, place.file, place)


def _interfaces(trtllm: str) -> tuple[str, ...]:
    names = {
        row.interface for row in containers() if row.trtllm == trtllm or row.trtllm.startswith(f"{trtllm}.")
    }
    try:
        interface(trtllm, "tensorrt_llm")
    except CatalogError:
        return tuple(sorted(names))
    return tuple(sorted(names | {trtllm}))


def agreed(versions: tuple[str, ...], look: Callable[[str], Iterator[Found]]) -> Iterator[Found]:
    """What ``look`` finds in each of several versions that may be meant; nothing where there is none."""
    every = [list(look(version)) for version in versions]
    places = [{(item.place, item.edit) for item in found} for found in every]
    if every:
        yield from (item for item in every[0] if all((item.place, item.edit) in known for known in places))


def container_of(version: str) -> str:
    """``container 25.10``, or words that say that none is known."""
    try:
        return f"container {container_of_trtllm(version).release}"
    except CatalogError:
        return "no container of the table"
