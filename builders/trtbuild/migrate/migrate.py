"""`migrate`: reads an old repository, plans it anew, and says what became of everything in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from trtbuild.catalog.gpus import Gpu
from trtbuild.errors import RepositoryError
from trtbuild.migrate.describe import Described, describe
from trtbuild.migrate.facts import Facts, read_facts
from trtbuild.migrate.identity import identify
from trtbuild.migrate.leftovers import beside, code, leftovers, unfilled
from trtbuild.migrate.notes import Note, ordered
from trtbuild.migrate.old import CLASSIC_ENGINE, OldLlm, OldRepository, read_old
from trtbuild.migrate.pools import fitted
from trtbuild.migrate.tokenizer import tokenizer_note, usable_tokenizer
from trtbuild.plan.sources import default_name
from trtbuild.prepare import Prepared, choose_gpu, prepare
from trtbuild.repository.compose import plan_container
from trtbuild.repository.names import LlmNames, NameScheme, llm_names
from trtbuild.spec import DeploymentSpec, Target, check_model_name
from trtbuild.targets import Host, detect_host

_CLASSIC_FRONTS = ("tensorrt_llm_bls", "ensemble")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Request:
    """What the user asks for.

    Attributes:
        models: old engine → the model that it is; the key "" stands for the only engine.
        engines: old engine → its folder, where the path in its config is of another machine; keys as above.
        names: None takes NVIDIA's names where the old repository has them.
        said: values of `LlmSpec` that count before what the old repository says.
    """

    target: Target
    container: str | None = None
    gpu: str | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, Path] = field(default_factory=dict)
    names: NameScheme | None = None
    said: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Migration:
    """A planned migration; nothing is written yet.

    Attributes:
        folders: old model → new model.
        tokenizers: language model of the plan → the old repository's folder with its tokenizer.
    """

    prepared: Prepared
    names: NameScheme
    notes: tuple[Note, ...]
    folders: Mapping[str, str]
    tokenizers: Mapping[str, Path]


def plan_migration(root: Path, request: Request, *, host: Host | None = None) -> Migration:
    """Reads ``root``, which stays as it is, and plans its models for another target or container.

    Raises:
        RepositoryError: nothing to migrate, or ``root`` is this project's own.
        CatalogError, ModelSourceError, PlanError: a model that cannot be told or planned.
    """
    host = host or detect_host()
    old = read_old(root)
    engines = _by_engine(old, request.engines)
    llms = [
        llm.with_engine(root, engines[llm.engine.name]) if llm.engine.name in engines else llm
        for llm in old.llms
    ]
    facts = [read_facts(llm) for llm in llms]
    scheme = request.names or _scheme(llms)
    gpu, _ = choose_gpu(request.gpu, host)
    described = list(_described(old, llms, facts, request, gpu))
    spec = DeploymentSpec(
        target=request.target,
        gpu=request.gpu,
        container=request.container,
        models=tuple(entry.llm for entry in described),
    )
    prepared, notes = fitted(
        spec,
        facts,
        described,
        partial(prepare, host=host, names=scheme),
        may_cut=not {"max_input_tokens", "max_output_tokens"} & request.said.keys(),
    )
    version = plan_container(prepared.plan).interface
    tokenizers: dict[str, Path] = {}
    folders: dict[str, str] = {}
    for llm, entry, planned in zip(llms, described, prepared.plan.llms, strict=True):
        names = llm_names(planned.name, scheme)
        folder, fault = usable_tokenizer(old.tokenizer_folder(llm))
        notes += [*entry.notes, tokenizer_note(llm, fault)]
        notes += leftovers(llm, planned, request.target, version, names)
        folders |= dict(_renamed(llm, names))
        if folder is not None:
            tokenizers[planned.name] = folder
    notes += [*unfilled(llms), *code(llms), *beside(old)]
    return Migration(prepared, scheme, ordered(notes), folders, tokenizers)


def _by_engine(old: OldRepository, values: Mapping[str, _Value]) -> dict[str, _Value]:
    """``values`` with every key an engine of the repository.

    Raises:
        RepositoryError: no such engine, or several where one was meant.
    """
    names = [llm.engine.name for llm in old.llms]
    held = ", ".join(names)
    if "" in values and len(names) > 1:
        raise RepositoryError(f"{old.lint.root} has {len(names)} engines: {held}", f"say which: {names[0]}=…")
    found = {key or names[0]: value for key, value in values.items()}
    for key in found:
        if key not in names:
            raise RepositoryError(f"{old.lint.root} has no engine {key!r}", f"its engines are {held}")
    return found


def _scheme(llms: list[OldLlm]) -> NameScheme:
    """NVIDIA's names where the old repository has them, so that clients find what they ask for."""
    ensemble = llms[0].ensemble
    classic = len(llms) == 1 and llms[0].engine.name == CLASSIC_ENGINE
    return "classic" if classic and (ensemble is None or ensemble.name == "ensemble") else "own"


def _described(
    old: OldRepository, llms: list[OldLlm], facts: list[Facts], request: Request, gpu: Gpu
) -> Iterator[Described]:
    asked = _by_engine(old, request.models)
    taken: set[str] = set()
    for llm, known in zip(llms, facts, strict=True):
        identity = identify(llm, known, asked=asked.get(llm.engine.name), tokenizer=old.tokenizer_folder(llm))
        plain = default_name(identity.model) if identity.record is None else identity.record.name
        name = _own_name(llm) or plain
        name = f"{name}-{llm.engine.name}" if name in taken else name
        taken.add(name)
        yield describe(
            llm, known, identity, name=name, target=request.target, gpu=gpu, said=dict(request.said)
        )


def _own_name(llm: OldLlm) -> str | None:
    """The name that clients call the text model by, where it is one that its owner chose."""
    for folder in (llm.bls, llm.ensemble):
        if folder is not None and folder.name not in _CLASSIC_FRONTS:
            try:
                return check_model_name(folder.name)
            except ValueError:
                continue
    return None


def _renamed(llm: OldLlm, names: LlmNames) -> Iterator[tuple[str, str]]:
    for old, new in (
        (llm.bls, names.front),
        (llm.preprocess, names.preprocess),
        (llm.engine, names.engine),
        (llm.postprocess, names.postprocess),
        (llm.ensemble, names.ensemble),
    ):
        if old is not None:
            # A folder that the new repository has under its old name answers as before.
            yield old.name, old.name if old.name in names.all() else new
