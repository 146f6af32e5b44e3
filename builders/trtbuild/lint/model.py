"""One folder of a repository: its config as a tree with positions, its parameters, tensors and versions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.pbtxt import Field, Message, whole_number
from trtbuild.lint.schema import Misfit, misfits

CONFIG = "config.pbtxt"
_VERSION = re.compile(r"0|[1-9][0-9]{0,18}")
# Platform → backend, as core's model_config_utils.cc knows them.
PLATFORMS = {
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "libtorch": "pytorch",
    "torch_aoti": "pytorch",
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
}


@dataclass(frozen=True)
class Parameter:
    """``parameters { key: … value { string_value: … } }``."""

    key: str
    value: str
    place: Field  # of the value, or of the entry where there is none

    @property
    def is_set(self) -> bool:
        """Whether there is a value: an empty one and a template's ``${…}`` are read as "not given"."""
        return bool(self.value.strip()) and "${" not in self.value

    @property
    def number(self) -> int | None:
        """The whole number that the value is, if it is one."""
        return whole_number(self.value)


@dataclass(frozen=True)
class Tensor:
    """An input or output that a config declares."""

    name: str
    dtype: str  # as written, TYPE_ included
    dims: tuple[int, ...]
    optional: bool
    place: Field  # of the name, or of the entry


@dataclass(frozen=True)
class Problem:
    """Why a config could not be read: the rule that tells it, and what it says."""

    rule: str
    found: Found


@dataclass
class ModelFolder:
    """One folder of the repository.

    ``config`` is None where there is no readable config; ``problem`` says why, unless there is none at all.
    """

    path: Path
    name: str
    config: Message | None = None
    problem: Problem | None = None

    @property
    def file(self) -> str:
        """The config's path in the repository."""
        return f"{self.name}/{CONFIG}"

    def at(self, where: Field | None) -> Place:
        """The place of a field; of the file where the field is missing."""
        return Place(self.file, where.line, where.column) if where else Place(self.file)

    def field(self, path: str) -> Field | None:
        """What the config says at a dotted path; None: nothing, or there is no config that can be read."""
        return self.config.get(path) if self.config else None

    def text(self, path: str, default: str = "") -> str:
        """The value at a dotted path as written."""
        found = self.field(path)
        return found.text if found else default

    def number(self, path: str, default: int = 0) -> int:
        """A whole number at a dotted path; ``default`` where it is missing or no number."""
        found = self.field(path)
        value = found.number if found is not None else None
        return default if value is None else value

    @cached_property
    def backend(self) -> str:
        """The backend's name, also where only the older ``platform`` says it."""
        return self.text("backend") or PLATFORMS.get(self.text("platform"), self.text("platform"))

    @property
    def is_ensemble(self) -> bool:
        return self.backend == "ensemble"

    @property
    def decoupled(self) -> bool:
        return self.text("model_transaction_policy.decoupled").lower() in ("true", "t", "1")

    @cached_property
    def instances(self) -> int:
        """Instances of all groups; a group without a count has one."""
        groups = self.all("instance_group")
        counts = [group.message.get("count") for group in groups if group.message]
        numbers = [count.number if count is not None else None for count in counts]
        return sum(1 if number is None or number < 0 else number for number in numbers) or 1

    def all(self, name: str) -> list[Field]:
        """Every top field called ``name``."""
        return self.config.all(name) if self.config else []

    def tensors(self, side: str) -> list[Tensor]:
        """What is declared under ``input`` or ``output``."""
        return self._tensors[side]

    @cached_property
    def _tensors(self) -> dict[str, list[Tensor]]:
        return {side: self._declared(side) for side in ("input", "output")}

    def _declared(self, side: str) -> list[Tensor]:
        found = []
        for entry in self.all(side):
            if entry.message is None:
                continue
            name, dtype = entry.message.get("name"), entry.message.get("data_type")
            optional = entry.message.get("optional")
            dims = tuple(item.number for item in entry.message.all("dims") if item.number is not None)
            is_optional = optional is not None and optional.text.lower() in ("true", "t", "1")
            found.append(
                Tensor(
                    name.text if name else "", dtype.text if dtype else "", dims, is_optional, name or entry
                )
            )
        return found

    @cached_property
    def misfits(self) -> tuple[Misfit, ...]:
        """Where the config does not fit Triton's message definitions."""
        return tuple(misfits(self.config)) if self.config else ()

    def is_unfilled(self, path: str) -> bool:
        """Whether a template's placeholder stands at a path: nothing can be said of the value then."""
        return any(item.rule == "unfilled-placeholder" and item.path == path for item in self.misfits)

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by key; the last of equal keys counts."""
        found = {}
        for entry in self.all("parameters"):
            if entry.message is None:
                continue
            key, value = entry.message.get("key"), entry.message.get("value.string_value")
            if key is not None:
                found[key.text] = Parameter(key.text, value.text if value else "", value or entry)
        return found

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """Names of the folders in it, numeric or not, sorted."""
        return tuple(sorted(entry.name for entry in entries(self.path) if entry.is_dir()))

    @property
    def numbered(self) -> tuple[str, ...]:
        """Of these, those that Triton takes: whole numbers without a leading zero."""
        return tuple(name for name in self.versions if _VERSION.fullmatch(name))

    @property
    def loaded(self) -> tuple[str, ...]:
        """Of these, those that version_policy loads; without one, the highest; `latest {}` is none."""
        numbers = sorted(self.numbered, key=int, reverse=True)
        policy = self.field("version_policy")
        chosen = policy.message if policy is not None and policy.message is not None else Message()
        if chosen.get("all") is not None:
            return tuple(numbers)
        specific = chosen.get("specific")
        if specific is not None and specific.message is not None:
            wanted = {item.text for item in specific.message.all("versions")}
            return tuple(number for number in numbers if number in wanted)
        count = self.number("version_policy.latest.num_versions") if chosen.get("latest") is not None else 1
        return tuple(numbers[: max(count, 0)])

    def files(self, pattern: str) -> Iterator[Path]:
        """Files below the folder that match, links that lead out or round in circles left out."""
        yield from (found for found in sorted(self.path.glob(pattern)) if os.path.isfile(found))  # noqa: PTH113


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder and can be looked at; nothing where the folder itself cannot."""
    try:
        with os.scandir(folder) as scan:
            return [entry for entry in scan if can_be_followed(entry)]
    except OSError:
        return []


def can_be_followed(entry: os.DirEntry[str]) -> bool:
    """Whether the entry can be looked at at all: a loop of links cannot."""
    try:
        entry.stat()
    except OSError:
        return False
    return True


def lost_links(folder: Path) -> list[str]:
    """Links of a folder that lead nowhere or round in circles: Triton fails to list the folder."""
    try:
        with os.scandir(folder) as scan:
            return sorted(entry.name for entry in scan if entry.is_symlink() and not can_be_followed(entry))
    except OSError:
        return []
