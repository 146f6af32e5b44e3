"""A repository as the linter sees it: folders, configs as trees with positions, what could not be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trtbuild.lint.engines import EngineFiles, read_engine
from trtbuild.lint.files import TextFile, read_text_files
from trtbuild.lint.findings import Found, Place
from trtbuild.lint.pbtxt import Field, Message, PbtxtError, parse
from trtbuild.lint.schema import Misfit, misfits
from trtbuild.lint.versions import MANIFEST, Known, engine_version, stamped_version

CONFIG = "config.pbtxt"
_PLATFORMS = {
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
}
MAX_CONFIG_BYTES = 4 << 20  # NVIDIA's largest template has 20 KB; what is larger is no config


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

    def text(self, path: str, default: str = "") -> str:
        """The value at a dotted path as written."""
        found = self.config.get(path) if self.config else None
        return found.text if found else default

    def number(self, path: str, default: int = 0) -> int:
        """A whole number at a dotted path; ``default`` where it is missing or no number."""
        try:
            return int(self.text(path, str(default)), 0)
        except ValueError:
            return default

    @cached_property
    def backend(self) -> str:
        """The backend's name, also where only the older ``platform`` says it."""
        return self.text("backend") or _PLATFORMS.get(self.text("platform"), self.text("platform"))

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
        return sum(int(count.text) if count and count.text.isdigit() else 1 for count in counts) or 1

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
            dims = tuple(int(item.text) for item in entry.message.all("dims") if _is_whole(item.text))
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
        return tuple(sorted(entry.name for entry in _entries(self.path) if entry.is_dir()))

    def files(self, pattern: str) -> Iterator[Path]:
        """Files below the folder that match, links that lead out or round in circles left out."""
        yield from (found for found in sorted(self.path.glob(pattern)) if os.path.isfile(found))  # noqa: PTH113


@dataclass
class LintRepository:
    """All folders of a repository, by name. ``stated`` is the version that the command line says."""

    root: Path
    models: dict[str, ModelFolder]
    stated: Known | None = None
    gpu_bytes: int | None = None

    @property
    def readable(self) -> list[ModelFolder]:
        """Models whose config is a tree."""
        return [model for model in self.models.values() if model.config is not None]

    @cached_property
    def is_ours(self) -> bool:
        """Written by trtbuild: what is not there yet will be brought by its build."""
        return (self.root / MANIFEST).is_file()

    @cached_property
    def stamp(self) -> Known | None:
        """What ``trtbuild.json`` says."""
        return stamped_version(self.root)

    def engine_files(self, model: ModelFolder) -> EngineFiles | None:
        """The engine that a model's ``gpt_model_path`` means; None where it is not on this machine."""
        if model.name not in self._engines:
            path = model.parameters.get("gpt_model_path")
            self._engines[model.name] = (
                read_engine(self.root, path.value, ours=self.is_ours)
                if path is not None and path.is_set
                else None
            )
        return self._engines[model.name]

    @cached_property
    def _engines(self) -> dict[str, EngineFiles | None]:
        return {}

    @cached_property
    def built_with(self) -> dict[str, Known]:
        """Model → the version that its engine says."""
        found = {}
        for model in self.readable:
            files = self.engine_files(model)
            known = engine_version(files.version, files.at("version")) if files is not None else None
            if known is not None:
                found[model.name] = known
        return found

    @cached_property
    def known(self) -> Known | None:
        """The version that will serve the repository: said, stamped, or that of all its engines."""
        if self.stated is not None:
            return self.stated
        if self.stamp is not None:
            return self.stamp
        versions = {known.trtllm: known for known in self.built_with.values()}
        return next(iter(versions.values())) if len(versions) == 1 else None

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Row sets of the interface table that the version may mean; empty where it is unknown."""
        return self.known.interfaces if self.known is not None else ()

    @cached_property
    def text_files(self) -> tuple[TextFile, ...]:
        """What people wrote: code, settings, launch lines."""
        return read_text_files(self.root)

    def relative(self, path: Path) -> str:
        """A path as findings show it."""
        return path.relative_to(self.root).as_posix()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as scan:
            return [entry for entry in scan if _safe_is(entry)]
    except OSError:
        return []


def _safe_is(entry: os.DirEntry[str]) -> bool:
    """Whether the entry can be looked at at all: a loop of links cannot."""
    try:
        entry.stat()
    except OSError:
        return False
    return True


def _is_whole(text: str) -> bool:
    return text.lstrip("-").isdigit()


def load(root: Path, stated: Known | None = None, gpu_bytes: int | None = None) -> LintRepository:
    """Reads every folder's config; nothing that is wrong with one raises.

    Args:
        gpu_bytes: memory of one GPU, where it is known.
    """
    models = {}
    for entry in sorted(_entries(root), key=lambda item: item.name):
        if entry.is_dir() and not entry.name.startswith("."):
            models[entry.name] = _load_model(root / entry.name)
    for name in sorted(_lost_links(root)):
        problem = Found(
            Place(name), "the link cannot be followed",
            "Triton cannot look into it, and fails to list its models", "mend or remove the link",
        )  # fmt: skip
        models[name] = ModelFolder(root / name, name, problem=Problem("unreadable", problem))
    return LintRepository(root, models, stated, gpu_bytes)


def _lost_links(root: Path) -> list[str]:
    """Links of the root that lead nowhere or round in circles."""
    try:
        with os.scandir(root) as scan:
            return [entry.name for entry in scan if entry.is_symlink() and not _safe_is(entry)]
    except OSError:
        return []


def _load_model(path: Path) -> ModelFolder:
    model = ModelFolder(path, path.name)
    try:
        if (path / CONFIG).stat().st_size > MAX_CONFIG_BYTES:
            problem = f"{CONFIG} has more than {MAX_CONFIG_BYTES >> 20} MiB"
            return _unreadable(model, problem, "put the model's data into its version folder")
        raw = (path / CONFIG).read_bytes()
    except FileNotFoundError:
        return model  # a rule of its own: some backends do without
    except OSError as error:
        return _unreadable(model, f"{CONFIG} cannot be read: {error.strerror}", "make it a readable file")
    if b"\0" in raw:
        return _unreadable(model, f"{CONFIG} is a binary file", "write the configuration as text")
    try:
        model.config = parse(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return _unreadable(
            model, f"{CONFIG} is not UTF-8: byte 0x{raw[error.start]:02x}", "save it as UTF-8", line=line
        )
    except PbtxtError as error:
        where = f" (in {error.key})" if error.key else ""
        model.problem = Problem(
            "syntax",
            Found(
                Place(model.file, error.line, error.column),
                f"{error.message}{where}",
                "Triton cannot parse the file and does not load the model",
                "mend the text at this place",
            ),
        )
    return model


def _unreadable(model: ModelFolder, found: str, remedy: str, *, line: int = 0) -> ModelFolder:
    model.problem = Problem(
        "unreadable", Found(Place(model.file, line), found, "Triton cannot load the model", remedy)
    )
    return model
