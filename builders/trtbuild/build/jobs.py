"""What is to be done for one language model: where its weights come from, the commands, the text to calibrate
on.

``plan_job`` decides it once; the runner (``steps.py``) and the script for another machine (``script.py``)
read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trtbuild.build.calibration import Calibration, load_calibration
from trtbuild.build.checkpoints import Checkpoint, expected_checkpoint, read_checkpoint
from trtbuild.build.commands import EXAMPLES, Command, Recipe, llm_commands
from trtbuild.build.flags import CALIBRATED_FORMATS, SIZES_TOLD, require_class
from trtbuild.build.routes import hub_checkpoint, note_for_sibling, route, with_kv
from trtbuild.catalog.formats import find_format
from trtbuild.catalog.models import find_model
from trtbuild.defaults import CALIBRATION_TOKENS
from trtbuild.errors import BuildError, CatalogError, ModelSourceError
from trtbuild.plan.architecture import Architecture, from_hf_config, from_record
from trtbuild.plan.groups import choose_group
from trtbuild.plan.model import LlmPlan
from trtbuild.spec import LlmSpec, Target, check_model_name

DEFAULT_REVISION = "main"


@dataclass(frozen=True)
class JobOptions:
    """What a user may decide about a build.

    Attributes:
        revision: branch, tag or commit on the hub.
        calibrate: make our own quantisation even where a published checkpoint exists.
        calibration: JSONL or text file, which calibrates too; None: the shipped texts. field, samples,
        tokens: see ``load_calibration``.
        group_size: for AWQ; None: the format's default.
        loras: folders of LoRA adapters (PEFT, safetensors) by name.
        guided: prepare guided decoding.
        on_cpu: quantise with modelopt here instead of TensorRT-LLM's quantize.py on a GPU.
    """

    revision: str = DEFAULT_REVISION
    calibrate: bool = False
    calibration: Path | None = None
    calibration_field: str | None = None
    calibration_samples: int | None = None
    calibration_tokens: int = CALIBRATION_TOKENS
    group_size: int | None = None
    loras: Mapping[str, Path] = field(default_factory=dict)
    guided: bool = False
    on_cpu: bool = False

    @classmethod
    def of(cls, spec: LlmSpec) -> JobOptions:
        """What a deployment's description decides of a build."""
        return cls(
            revision=spec.revision,
            calibrate=spec.calibrate or spec.calibration is not None,
            calibration=spec.calibration,
            calibration_field=spec.calibration_field,
            calibration_samples=spec.calibration_samples,
            calibration_tokens=spec.calibration_tokens,
            loras=spec.loras,
            guided=spec.guided,
            on_cpu=spec.on_cpu,
        )


@dataclass(frozen=True)
class Job:
    """The build of one model. ``llm.source`` is what is fetched, which may be a published sibling."""

    llm: LlmPlan
    commands: tuple[Command, ...]
    recipe: Recipe
    folder: Path | None = None  # weights on this machine; None: fetched
    calibration: Calibration | None = None
    loras: Mapping[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())


def plan_job(
    llm: LlmPlan,
    *,
    target: Target,
    version: str,
    options: JobOptions | None = None,
    examples: str = EXAMPLES,
    checkpoint: Checkpoint | None = None,
) -> Job:
    """Decides how one model is built.

    Args:
        checkpoint: the model's folder where it was read already; None reads it.

    Raises:
        BuildError, CatalogError, ModelSourceError: there is no way from the model's weights to the target.
        ValueError: a LoRA's name that cannot be a folder's.
    """
    options = options or JobOptions()
    folder = local_folder(llm) if checkpoint is None else checkpoint.folder
    notes: list[str] = []
    if folder is not None:
        checkpoint = checkpoint or _in_folder(folder, notes)
    else:
        checkpoint = _on_the_hub(llm, target, version, options, notes)
        llm = llm.model_copy(update={"source": checkpoint.folder.as_posix()})
    recipe = route(checkpoint, quant=llm.quant, target=target, version=version, group_size=options.group_size)
    recipe = with_kv(recipe, llm.kv_dtype, target=target, what=str(checkpoint.folder))
    if target is Target.ENGINE and recipe.method == "quantise":
        require_class(checkpoint.model_type, version)
    if recipe.method == "quantise" and options.group_size is None:
        architecture = _architecture(folder, llm)
        recipe = replace(recipe, group_size=choose_group(architecture, find_format(llm.quant), llm.tp))
    calibration = None
    if recipe.method == "quantise" or llm.kv_dtype == "int8":
        calibration = load_calibration(
            options.calibration,
            quant=llm.quant,
            samples=options.calibration_samples,
            field=options.calibration_field,
        )
        notes += [calibration.note] if calibration.note else []
        recipe = replace(
            recipe,
            calibration_samples=len(calibration.texts),
            calibration_tokens=options.calibration_tokens,
            # quantize.py writes no Hugging Face checkpoint in the versions that have the target engine only.
            quantiser="cpu"
            if (options.on_cpu or target is Target.LLMAPI) and llm.quant in CALIBRATED_FORMATS
            else "container",
        )
    if options.calibrate and calibration is None:
        raise ModelSourceError(
            f"{llm.name}: nothing is calibrated on the way from {checkpoint.format} to {llm.quant}",
            "leave out --calibrate and --calibration",
            f"give the 16-bit weights and one of --quant {', '.join(sorted(CALIBRATED_FORMATS))}",
        )
    recipe = replace(
        recipe,
        revision=None if folder is not None else options.revision,
        loras=tuple(
            (check_model_name(name), lora_rank(path)) for name, path in sorted(options.loras.items())
        ),
        guided=options.guided,
    )
    commands = llm_commands(
        llm,
        target=target,
        version=version,
        model_type=checkpoint.model_type,
        recipe=recipe,
        layers=_architecture(folder, llm).layers if checkpoint.model_type in SIZES_TOLD else 0,
        examples=examples,
    )
    return Job(llm, commands, recipe, folder, calibration, options.loras, tuple(notes))


def _architecture(folder: Path | None, llm: LlmPlan) -> Architecture:
    return from_hf_config(folder) if folder is not None else from_record(find_model(llm.source))


def lora_rank(folder: Path) -> int:
    """The rank of a PEFT LoRA adapter.

    Raises:
        ModelSourceError: no such adapter, pickled weights, or an adapter of another kind.
    """
    if not (folder / "adapter_model.safetensors").is_file():
        raise ModelSourceError(
            f"{folder}: no adapter_model.safetensors (pickled adapters stay closed)",
            "save the adapter with safe_serialization=True",
        )
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        kind, rank = str(config.get("peft_type", "LORA")).upper(), int(config["r"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelSourceError(f"{folder}: its adapter_config.json cannot be read: {error}") from error
    if kind != "LORA" or rank < 1:
        raise ModelSourceError(f"{folder}: an adapter of type {kind} with rank {rank}; LoRA is converted")
    return rank


def local_folder(llm: LlmPlan) -> Path | None:
    """The folder of weights that a plan names, where it names one on this machine."""
    for place in (llm.weights_path, llm.source):
        if place is not None and (Path(place) / "config.json").is_file():
            return Path(place).resolve()
    return None


def _in_folder(folder: Path, notes: list[str]) -> Checkpoint:
    if any(folder.glob("*.safetensors")):
        return read_checkpoint(folder)
    notes.append(f"{folder} has no weights yet: the build needs its .safetensors files there")
    return expected_checkpoint(folder)


def _on_the_hub(
    llm: LlmPlan, target: Target, version: str, options: JobOptions, notes: list[str]
) -> Checkpoint:
    """What a repository of the hub holds according to the catalogue; it is checked again once it is
    fetched.
    """
    try:
        record = find_model(llm.source)
    except CatalogError as exc:
        raise BuildError(
            f"{llm.source} is in no catalogue, so its way to an engine is not known here",
            "fetch it, and give the folder with --weights",
        ) from exc
    checkpoint, sibling = hub_checkpoint(
        record,
        quant=llm.quant,
        target=target,
        version=version,
        tp=llm.tp,
        kv_dtype=llm.kv_dtype,
        calibrate=options.calibrate,
    )
    if sibling is not None:
        notes.append(note_for_sibling(sibling, record.id))
    return checkpoint
