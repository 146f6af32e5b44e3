"""A repository as the linter sees it: folders, configs as trees with positions, what could not be read."""

from __future__ import annotations

import shlex
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trtbuild.catalog.gpus import Gpu
from trtbuild.lint.encoding import binary_kind
from trtbuild.lint.engines import EngineFiles, read_engine
from trtbuild.lint.files import TextFile, read_text_files
from trtbuild.lint.findings import Found, Place
from trtbuild.lint.model import CONFIG, ModelFolder, Problem, entries, lost_links
from trtbuild.lint.pbtxt import PbtxtError, parse
from trtbuild.lint.roles import is_cpp_engine
from trtbuild.lint.versions import MANIFEST, Known, engine_version, stamped_version

MAX_CONFIG_BYTES = 4 << 20  # NVIDIA's largest template has 20 KB; what is larger is no config


@dataclass
class LintRepository:
    """All folders of a repository, by name. ``stated`` is the version that the command line says."""

    root: Path
    models: dict[str, ModelFolder]
    stated: Known | None = None
    gpu: Gpu | None = None

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
            files = self.engine_files(model) if is_cpp_engine(model) else None
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


def load(root: Path, stated: Known | None = None, gpu: Gpu | None = None) -> LintRepository:
    """Reads every folder's config; nothing that is wrong with one raises.

    Args:
        gpu: the GPU that it will run on, where it is known.
    """
    models = {}
    for entry in sorted(entries(root), key=lambda item: item.name):
        if entry.is_dir() and not entry.name.startswith("."):
            models[entry.name] = _load_model(root / entry.name)
    for name in lost_links(root):
        problem = Found(
            Place(name), "the link cannot be followed",
            "Triton cannot look into it, and fails to list its models", "mend or remove the link",
        )  # fmt: skip
        models[name] = ModelFolder(root / name, name, problem=Problem("unreadable", problem))
    return LintRepository(root, models, stated, gpu)


def _load_model(path: Path) -> ModelFolder:
    model = ModelFolder(path, path.name)
    try:
        status = (path / CONFIG).stat()
        if not stat.S_ISREG(status.st_mode):
            return _unreadable(model, f"{CONFIG} is no regular file", "make it a file")
        if status.st_size > MAX_CONFIG_BYTES:
            problem = f"{CONFIG} has more than {MAX_CONFIG_BYTES >> 20} MiB"
            return _unreadable(model, problem, "put the model's data into its version folder")
        raw = (path / CONFIG).read_bytes()
    except FileNotFoundError:
        return model  # a rule of its own: some backends do without
    except OSError as error:
        return _unreadable(model, f"{CONFIG} cannot be read: {error.strerror}", "make it a readable file")
    if (kind := binary_kind(raw)) is not None:
        return _unreadable(
            model, f"{CONFIG} is {kind.name}", kind.remedy.format(file=shlex.quote(model.file))
        )
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
