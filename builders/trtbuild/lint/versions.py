"""Which TensorRT-LLM a repository is for: said on the command line, by its stamp, or by an engine."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtbuild.catalog.versions import Container, container_of_trtllm, find_container, interface
from trtbuild.errors import CatalogError
from trtbuild.lint.findings import Place

MANIFEST = "trtbuild.json"
_RELEASE = re.compile(r"\d+\.\d+(?:\.\d+)?(?:\.post\d+)?")


@dataclass(frozen=True)
class Known:
    """A version that is known, and from where.

    Attributes:
        interface: row set of the interface table; None for a version outside it.
        container: the release, where it is known itself.
    """

    trtllm: str
    interface: str | None
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
        return Known(row.trtllm, row.interface, row, f"--container {container}", Place("."))
    if trtllm is None:
        return None
    row = container_of_trtllm(trtllm)
    return Known(row.trtllm, row.interface, None, f"--trtllm {trtllm}", Place("."))


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
    return Known(trtllm, version, row, MANIFEST, Place(MANIFEST, line))


def engine_version(text: str, place: Place) -> Known | None:
    """What an engine's config.json says: ``0.12.0.dev2024080600`` counts as 0.12.0."""
    match = _RELEASE.match(text)
    if match is None:
        return None
    trtllm = match.group()
    try:
        row: Container | None = container_of_trtllm(trtllm)
    except CatalogError:
        row = None
    name = row.interface if row is not None else trtllm
    try:
        interface(name, "tensorrt_llm")
    except CatalogError:
        return Known(trtllm, None, None, place.file, place)
    return Known(trtllm, name, None, place.file, place)


def container_of(version: str) -> str:
    """``container 25.10``, or words that say that none is known."""
    try:
        return f"container {container_of_trtllm(version).release}"
    except CatalogError:
        return "no container of the table"
