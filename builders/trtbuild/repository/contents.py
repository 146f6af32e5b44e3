"""What a repository is made of before it is on disk: models, files, and where their bytes come from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tritonclient.grpc import model_config_pb2

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Text:
    """A file whose bytes are made here."""

    data: bytes

    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Linked:
    """A file that is taken over from ``source``, as a hard link where the file system allows one."""

    source: Path

    def sha256(self) -> str:
        return file_sha256(self.source)


Content = Text | Linked


@dataclass(frozen=True)
class ModelFolder:
    """One Triton model.

    Attributes:
        name: the model's and its folder's name.
        config: its parsed configuration; the text is among ``files`` as config.pbtxt.
        files: path inside the folder (with "/") → content.
        derived: what a build on another machine makes of them; it goes when one of them changes.
    """

    name: str
    config: model_config_pb2.ModelConfig
    files: Mapping[str, Content]
    derived: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelUnit:
    """All folders of one model of the plan; they are written, replaced and removed together.

    ``engine_key`` tells engines apart: built files are kept only while it stays the same.
    """

    name: str
    kind: str
    folders: tuple[ModelFolder, ...]
    engine_key: str | None = None


@dataclass(frozen=True)
class Repository:
    """A whole repository: the models, and the files that lie beside them."""

    units: tuple[ModelUnit, ...]
    files: Mapping[str, Text] = field(default_factory=dict)

    def folders(self) -> dict[str, ModelFolder]:
        return {folder.name: folder for unit in self.units for folder in unit.folders}


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
