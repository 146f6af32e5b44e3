"""The language models of an old repository: which folders belong together, and what they name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trtbuild.errors import RepositoryError
from trtbuild.lint.engines import EngineFiles, locate, read_engine
from trtbuild.lint.model import ModelFolder, Parameter
from trtbuild.lint.repository import LintRepository, load
from trtbuild.lint.roles import is_bls, is_engine, is_llmapi, is_postprocessing, is_preprocessing
from trtbuild.lint.rules.decoupled_disagreement import step_names
from trtbuild.repository.manifest import MANIFEST

CLASSIC_ENGINE = "tensorrt_llm"


@dataclass(frozen=True)
class OldLlm:
    """One engine, or LLM API model, and the folders around it.

    Attributes:
        files: the engine on this machine; None where its folder is not here.
    """

    engine: ModelFolder
    files: EngineFiles | None
    preprocess: ModelFolder | None
    postprocess: ModelFolder | None
    ensemble: ModelFolder | None
    bls: ModelFolder | None

    @property
    def folders(self) -> tuple[ModelFolder, ...]:
        found = (self.preprocess, self.engine, self.postprocess, self.ensemble, self.bls)
        return tuple(folder for folder in found if folder is not None)

    @property
    def tokenizer(self) -> Parameter | None:
        """``tokenizer_dir`` of the steps, else of the engine."""
        for folder in (self.preprocess, self.postprocess, self.engine):
            parameter = folder.parameters.get("tokenizer_dir") if folder is not None else None
            if parameter is not None and parameter.is_set:
                return parameter
        return None

    def with_engine(self, root: Path, folder: Path) -> OldLlm:
        """The same, with the engine in ``folder``: its own path is of another machine.

        Raises:
            RepositoryError: no engine's config.json is there.
        """
        files = read_engine(root, str(folder.absolute()), ours=False)
        if files is None or files.get("build_config") is None:
            raise RepositoryError(
                f"{folder} has no config.json of an engine", "give the folder that trtllm-build wrote"
            )
        return replace(self, files=files)

    @property
    def is_llmapi(self) -> bool:
        return is_llmapi(self.engine) and not is_engine(self.engine)


@dataclass(frozen=True)
class OldRepository:
    """A repository that is only read. ``drafts`` are engines that guess tokens for others."""

    lint: LintRepository
    llms: tuple[OldLlm, ...]
    drafts: tuple[ModelFolder, ...]

    def tokenizer_folder(self, llm: OldLlm) -> Path | None:
        """The folder that ``tokenizer_dir`` means, if it is on this machine."""
        return locate(self.lint.root, llm.tokenizer.value) if llm.tokenizer is not None else None

    @property
    def others(self) -> list[ModelFolder]:
        """Folders that belong to none of the language models."""
        taken = {folder.name for llm in self.llms for folder in llm.folders}
        taken |= {draft.name for draft in self.drafts}
        return [model for name, model in self.lint.models.items() if name not in taken]


def read_old(root: Path) -> OldRepository:
    """Reads a repository.

    Raises:
        RepositoryError: no folder, one of this project's own, or one without a TensorRT-LLM model.
    """
    if not root.is_dir():
        raise RepositoryError(f"{root} is no folder", "give the old model repository")
    if (root / MANIFEST).is_file():
        raise RepositoryError(
            f"{root} was written by trtbuild already",
            f"plan it again: trtbuild --spec {root}/deployment.yaml --target TARGET --output NEW",
        )
    repository = load(root)
    found = [model for model in repository.readable if is_engine(model) or is_llmapi(model)]
    drafts = [model for model in found if model.name in _draft_names(repository)]
    llms = tuple(_gather(repository, model) for model in found if model not in drafts)
    if not llms:
        raise RepositoryError(
            f"{root} has no TensorRT-LLM model to migrate{_instead(repository)}", *_ways(root)
        )
    return OldRepository(repository, llms, tuple(drafts))


def _instead(repository: LintRepository) -> str:
    broken = [model for model in repository.models.values() if model.problem is not None]
    if broken:
        return "; " + "; ".join(f"{model.problem.found.place}: {model.problem.found.found}"
                                for model in broken[:3] if model.problem is not None)  # fmt: skip
    held = [f"{model.name} ({model.backend or 'no backend'})" for model in repository.readable]
    return f"; it holds {', '.join(held[:8])}" if held else "; it holds no model at all"


def _ways(root: Path) -> Iterator[str]:
    yield 'an engine model has backend "tensorrtllm", or the parameters gpt_model_type and gpt_model_path'
    inner = sorted(path.parent.parent for path in root.glob("*/*/config.pbtxt"))
    if inner:
        yield f"give the repository itself: trtbuild migrate {inner[0]}"
    yield f"trtbuild lint {root}"


def _draft_names(repository: LintRepository) -> set[str]:
    parameters = (model.parameters.get("tensorrt_llm_draft_model_name") for model in repository.readable)
    return {parameter.value for parameter in parameters if parameter is not None and parameter.is_set}


def _gather(repository: LintRepository, engine: ModelFolder) -> OldLlm:
    ensemble = next(
        (model for model in repository.readable if model.is_ensemble and engine.name in step_names(model)),
        None,
    )
    steps = (
        [repository.models[name] for name in step_names(ensemble) if name in repository.models]
        if ensemble
        else []
    )
    bls = next((model for model in repository.readable if _calls(model, engine.name)), None)
    if not steps:  # a BLS model alone names its steps in its code: NVIDIA's names, or those of the parameters
        steps = [model for model in repository.readable if not _taken(repository, model)]
    return OldLlm(
        engine=engine,
        files=repository.engine_files(engine),
        preprocess=next((step for step in steps if is_preprocessing(step)), None),
        postprocess=next((step for step in steps if is_postprocessing(step)), None),
        ensemble=ensemble,
        bls=bls,
    )


def _calls(model: ModelFolder, engine: str) -> bool:
    if not is_bls(model) or is_engine(model):
        return False
    named = model.parameters.get("tensorrt_llm_model_name")
    return (named.value if named is not None and named.is_set else CLASSIC_ENGINE) == engine


def _taken(repository: LintRepository, model: ModelFolder) -> bool:
    return any(model.name in step_names(other) for other in repository.readable if other.is_ensemble)
