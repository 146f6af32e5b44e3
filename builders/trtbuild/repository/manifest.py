"""``trtbuild.json``: proves that a folder is ours, says what it was made from, and finds changes since."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trtbuild import __version__
from trtbuild.errors import RepositoryError
from trtbuild.plan.model import Plan
from trtbuild.repository.contents import Repository, file_sha256
from trtbuild.repository.names import NameScheme
from trtbuild.spec import DeploymentSpec, check_model_name

MANIFEST = "trtbuild.json"
SCHEMA = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class UnitEntry(_Frozen):
    """One model of the plan: its folders, and the SHA-256 of each generated file in them."""

    kind: str
    engine_key: str | None
    folders: dict[str, dict[str, str]]


class Manifest(_Frozen):
    """The content of ``trtbuild.json``. ``reference`` marks the project's own example deployment."""

    schema_number: int = Field(alias="schema")
    generator: str
    reference: bool
    names: NameScheme
    interface: str
    plan_sha256: str
    spec: dict[str, Any]
    plan: dict[str, Any]
    local_differences: list[dict[str, str]]
    models: dict[str, UnitEntry]
    files: dict[str, str]

    def folders(self) -> dict[str, dict[str, str]]:
        return {name: files for unit in self.models.values() for name, files in unit.folders.items()}

    def text(self) -> str:
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=2, ensure_ascii=False) + "\n"


def plan_sha256(plan: Plan) -> str:
    """Digest of a plan: two plans with the same digest give the same bytes."""
    return hashlib.sha256(plan.model_dump_json().encode()).hexdigest()


def make_manifest(
    repository: Repository,
    *,
    plan: Plan,
    spec: DeploymentSpec,
    names: NameScheme,
    interface: str,
    reference: bool,
    local_differences: list[dict[str, str]],
) -> Manifest:
    """Describes a repository that is about to be written."""
    models = {
        unit.name: UnitEntry(
            kind=unit.kind,
            engine_key=unit.engine_key,
            folders={
                folder.name: {path: content.sha256() for path, content in sorted(folder.files.items())}
                for folder in unit.folders
            },
        )
        for unit in repository.units
    }
    return Manifest(
        schema=SCHEMA,
        generator=f"trtbuild {__version__}",
        reference=reference,
        names=names,
        interface=interface,
        plan_sha256=plan_sha256(plan),
        spec=spec.model_dump(mode="json"),
        plan=plan.model_dump(mode="json"),
        local_differences=local_differences,
        models=models,
        files={name: content.sha256() for name, content in sorted(repository.files.items())},
    )


def read_manifest(repo: Path) -> Manifest | None:
    """The manifest of a repository; None where there is none.

    Raises:
        RepositoryError: for a manifest that cannot be read, is of a newer schema, or names folders outside.
    """
    path = repo / MANIFEST
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_bytes())
    except ValueError as exc:
        raise RepositoryError(f"{path} is not JSON: {exc}", "restore it, or write to another folder") from exc
    number = document.get("schema") if isinstance(document, dict) else None
    if number != SCHEMA:
        raise RepositoryError(
            f"{path} has schema {number!r}; this trtbuild reads {SCHEMA}",
            "use the trtbuild that wrote it, or write to another folder",
        )
    try:
        manifest = Manifest.model_validate(document)
        for name in manifest.folders():
            check_model_name(name)
    except ValueError as exc:
        error = exc.errors()[0]["msg"] if isinstance(exc, ValidationError) else str(exc)
        raise RepositoryError(
            f"{path} is damaged: {error}", "restore it, or write to another folder"
        ) from exc
    return manifest


def verify_manifest(repo: Path) -> list[str]:
    """What differs between a repository and its manifest: one line per missing or changed file.

    Files that a build adds (engines, tokenizers) are not in the manifest and not reported.

    Raises:
        RepositoryError: if there is no readable manifest.
    """
    manifest = read_manifest(repo)
    if manifest is None:
        raise RepositoryError(f"{repo} has no {MANIFEST}: it was not written by trtbuild")
    expected = {
        f"{folder}/{path}": sha for folder, files in manifest.folders().items() for path, sha in files.items()
    }
    expected |= manifest.files
    drift = []
    for name, sha in expected.items():
        path = repo / name
        if not path.is_file():
            drift.append(f"{name} is missing")
        elif file_sha256(path) != sha:
            drift.append(f"{name} was changed after it was written")
    return drift
