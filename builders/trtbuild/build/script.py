"""The steps that need a GPU, for ``build_engines.sh``, which is run on another machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from trtbuild.build.calibration import load_calibration
from trtbuild.build.checkpoints import Checkpoint, read_checkpoint
from trtbuild.build.commands import Command, llm_commands
from trtbuild.build.quant_configs import SourceQuant, parse_quant_config
from trtbuild.build.routes import choose_sibling, note_for_sibling, route
from trtbuild.catalog.models import ModelRecord, Sibling, find_model
from trtbuild.catalog.versions import Container
from trtbuild.errors import BuildError, CatalogError
from trtbuild.plan.model import LlmPlan
from trtbuild.spec import Target

DEFAULT_REVISION = "main"


@dataclass(frozen=True)
class ScriptedStep:
    """A command as the template writes it; ``key`` digests everything in it that changes its product."""

    command: Command
    key: str

    @property
    def facts(self) -> str:
        """What the product's JSON files must say, one fact a line."""
        return "\n".join(json.dumps([fact.file, fact.path, fact.value]) for fact in self.command.facts)


@dataclass(frozen=True)
class ScriptedModel:
    """One language model of the script: where its weights come from, what is run, what goes where."""

    llm: LlmPlan
    steps: tuple[ScriptedStep, ...]
    source: str | None  # folder on the machine that builds; None: fetched
    calibration: str | None  # content of calibration/train.jsonl
    notes: tuple[str, ...]
    tokenizer: str  # folders inside the repository
    engine: str

    @property
    def engine_files(self) -> list[str]:
        """What is taken over of an engine; config.json last: without it nothing loads."""
        return [*(f"rank{rank}.engine" for rank in range(self.llm.tp)), "config.json"]


def scripted_model(llm: LlmPlan, container: Container, *, tokenizer: str, engine: str) -> ScriptedModel:
    """Decides how one model's engine is made on another machine.

    Args:
        tokenizer, engine: folders inside the repository that get the tokenizer's files and the engine.

    Raises:
        BuildError, CatalogError, ModelSourceError: there is no way from the model's weights to an engine.
    """
    folder = local_folder(llm)
    notes: tuple[str, ...] = ()
    if folder is not None:
        checkpoint, revision = read_checkpoint(folder), None
    else:
        checkpoint, notes = _on_the_hub(llm, container)
        llm = llm.model_copy(update={"source": checkpoint.folder.as_posix()})
        revision = DEFAULT_REVISION
    recipe = route(checkpoint, quant=llm.quant, target=Target.ENGINE, version=container.trtllm)
    calibration = None
    if recipe.method == "quantise" or llm.kv_dtype == "int8":
        texts = load_calibration(None, quant=llm.quant)
        calibration = "".join(json.dumps({"text": text}) + "\n" for text in texts.texts)
        recipe = replace(recipe, calibration_samples=len(texts.texts))
        notes += (texts.note,) if texts.note else ()
    recipe = replace(recipe, revision=revision)
    commands = llm_commands(
        llm,
        target=Target.ENGINE,
        version=container.trtllm,
        model_type=checkpoint.model_type,
        recipe=recipe,
        examples=container.paths.examples,
    )
    return ScriptedModel(
        llm=llm,
        steps=tuple(ScriptedStep(command, _key(command, container, calibration)) for command in commands),
        source=str(folder) if folder is not None else None,
        calibration=calibration,
        notes=notes,
        tokenizer=tokenizer,
        engine=engine,
    )


def local_folder(llm: LlmPlan) -> Path | None:
    """The folder of weights that a plan names, where it names one on this machine."""
    for place in (llm.weights_path, llm.source):
        if place is not None and (Path(place) / "config.json").is_file():
            return Path(place).resolve()
    return None


def _on_the_hub(llm: LlmPlan, container: Container) -> tuple[Checkpoint, tuple[str, ...]]:
    """What a repository of the hub holds according to the catalogue; the script checks it when it has it."""
    try:
        record = find_model(llm.source)
    except CatalogError as exc:
        raise BuildError(
            f"{llm.source} is in no catalogue, so its way to an engine is not known here",
            "fetch it, and give the folder with --weights",
        ) from exc
    sibling = choose_sibling(record, quant=llm.quant, target=Target.ENGINE, version=container.trtllm)
    if sibling is None:
        return _expected(record, record.id, None), ()
    return _expected(record, sibling.repo, _quantised(sibling)), (note_for_sibling(sibling, record.id),)


def _expected(record: ModelRecord, repository: str, quant: SourceQuant | None) -> Checkpoint:
    return Checkpoint(
        folder=Path(repository),
        kind="hf",
        model_type=record.shape.type,
        architecture=record.shape.class_,
        dtype=record.shape.dtype,
        size_bytes=0,
        quant=quant,
    )


def _quantised(sibling: Sibling) -> SourceQuant | None:
    """The quantisation that the catalogue's words mean, such as "awq int4 g128"."""
    words = sibling.method.lower().replace(",", " ").split()
    bits = next((int(word[3:]) for word in words if word.startswith("int")), 4)
    group = next((int(word[1:]) for word in words if word[:1] == "g" and word[1:].isdigit()), 128)
    section = {"quant_method": words[0], "bits": bits, "group_size": group}
    return parse_quant_config(Path(sibling.repo), {"quantization_config": section})


def _key(command: Command, container: Container, calibration: str | None) -> str:
    facts = [container.image, container.tensorrt, command.argv, [vars(fact) for fact in command.facts]]
    if "calibration" in command.inputs:
        facts.append(calibration or "")
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
