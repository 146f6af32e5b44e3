"""The way from a model's weights to what the target loads, for a folder at hand or a model on the hub."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trtbuild.build.checkpoints import Checkpoint
from trtbuild.build.commands import Recipe
from trtbuild.build.flags import CALIBRATED_FORMATS
from trtbuild.catalog.formats import find_format, format_support
from trtbuild.catalog.models import ModelRecord, Sibling
from trtbuild.catalog.versions import version_key
from trtbuild.errors import CatalogError, ModelSourceError
from trtbuild.plan.architecture import from_record
from trtbuild.plan.groups import fits
from trtbuild.plan.quant_configs import OWN_QUANTISATION, READABLE, SourceQuant, parse_quant_config
from trtbuild.spec import Target

_SIXTEEN_BIT = ("fp16", "bf16", "float32", "fp32")
# Converters that read AutoAWQ and GPTQ folders, and since when: TensorRT-LLM release notes 0.16,
# examples/models/core/{qwen,llama}/convert_checkpoint.py.
_IMPORT_SINCE = "0.16.0"
_IMPORT_TYPES = ("llama", "mistral", "mixtral", "qwen", "qwen2", "qwen3")


def route(
    checkpoint: Checkpoint, *, quant: str, target: Target, version: str | None, group_size: int | None = None
) -> Recipe:
    """Returns how a folder becomes what ``target`` loads in the format ``quant``.

    Args:
        version: TensorRT-LLM version; None for the target local.
        group_size: for a format that is calibrated here; None takes the format's default.

    Raises:
        ModelSourceError: there is no way, with those that there are.
    """
    if target is Target.LOCAL:
        raise ModelSourceError("the target local reads GGUF and OpenVINO IR and builds nothing")
    if checkpoint.kind == "trtllm":
        return _from_trtllm(checkpoint, quant, target)
    if checkpoint.quant is not None:
        return _from_quantised(checkpoint, quant, target, version or "0")
    return _from_sixteen_bit(checkpoint, quant, target, group_size)


def choose_sibling(
    record: ModelRecord,
    *,
    quant: str,
    target: Target,
    version: str | None,
    tp: int = 1,
    kv_dtype: str = "auto",
) -> Sibling | None:
    """Returns the published checkpoint of a model that serves ``quant`` on this target; None: there is none.

    Only one that `route` really takes: AutoAWQ and GPTQ for the compiled flow, modelopt's exports for the LLM
    API, and only one whose groups can be divided over ``tp`` GPUs. Where none is, the 16-bit weights are
    quantised; so they are for an engine with a narrow KV cache, whose scales are calibrated with them.
    """
    if target is Target.LOCAL or (target is Target.ENGINE and kv_dtype != "auto"):
        return None
    for sibling in record.siblings:
        with suppress(ModelSourceError):
            checkpoint = sibling_checkpoint(record, sibling)
            if checkpoint.format == quant:
                route(checkpoint, quant=quant, target=target, version=version)
                group = checkpoint.group_size
                if group is None or fits(from_record(record), find_format(quant), tp, group):
                    return sibling
    return None


def hub_checkpoint(
    record: ModelRecord,
    *,
    quant: str,
    target: Target,
    version: str | None,
    tp: int = 1,
    kv_dtype: str = "auto",
    calibrate: bool = False,
) -> tuple[Checkpoint, Sibling | None]:
    """What is fetched for a model of the catalogue, as the catalogue describes it, and the sibling it is.

    Args:
        calibrate: the 16-bit weights, even where a published checkpoint in the format exists.
    """
    sibling = (
        None
        if calibrate
        else choose_sibling(record, quant=quant, target=target, version=version, tp=tp, kv_dtype=kv_dtype)
    )
    return (
        _described(record, record.id, _native(record))
        if sibling is None
        else sibling_checkpoint(record, sibling)
    ), sibling


def _native(record: ModelRecord) -> SourceQuant | None:
    """The format in which a model is published by its own makers."""
    native = record.shape.native_quant
    if native is None:
        return None
    section = {"fp8-block": {"quant_method": "fp8", "weight_block_size": [128, 128]}}.get(
        native, {"quant_method": native}
    )
    return parse_quant_config(Path(record.id), {"quantization_config": section})


def sibling_checkpoint(record: ModelRecord, sibling: Sibling) -> Checkpoint:
    """A published checkpoint as the catalogue's words describe it, such as "awq int4 g128".

    Raises:
        ModelSourceError: nobody checked it, or it is quantised with what nothing here reads.
    """
    if sibling.unverified:
        raise ModelSourceError(f"{sibling.repo} was not checked")
    words = sibling.method.lower().replace(",", " ").split()
    if sibling.repo.lower().startswith(
        "nvidia/"
    ):  # modelopt's own exports, whose example's default is FP8 KV
        quant: SourceQuant | None = SourceQuant(
            "modelopt", words[0], 4 if words[0] in ("awq", "nvfp4") else 8, kv_algo="FP8"
        )
    else:
        bits = next((int(word[3:]) for word in words if word.startswith("int")), 4)
        group = next((int(word[1:]) for word in words if word[:1] == "g" and word[1:].isdigit()), 128)
        section = {"quant_method": words[0], "bits": bits, "group_size": group}
        if "block" in words:
            section["weight_block_size"] = [128, 128]
        quant = parse_quant_config(Path(sibling.repo), {"quantization_config": section})
    return _described(record, sibling.repo, quant)


def _described(record: ModelRecord, repository: str, quant: SourceQuant | None) -> Checkpoint:
    return Checkpoint(
        folder=Path(repository),
        kind="hf",
        model_type=record.shape.type,
        architecture=record.shape.class_,
        dtype=record.shape.dtype,
        size_bytes=0,
        quant=quant,
    )


def _imports(model_type: str, version: str) -> bool:
    return model_type in _IMPORT_TYPES and version_key(version) >= version_key(_IMPORT_SINCE)


def _from_trtllm(checkpoint: Checkpoint, quant: str, target: Target) -> Recipe:
    if target is not Target.ENGINE:
        raise ModelSourceError(
            f"{checkpoint.folder} is a TensorRT-LLM checkpoint, which only the compiled flow reads",
            "--target engine, or the Hugging Face folder it was made from",
        )
    if not _same_format(checkpoint.format, quant):
        raise _other_format(checkpoint, quant)
    return Recipe("ready", quant, checkpoint.group_size)


def _from_quantised(checkpoint: Checkpoint, quant: str, target: Target, version: str) -> Recipe:
    found = checkpoint.quant
    assert found is not None
    what = f"{checkpoint.folder} is {found.format} by {found.method}"
    try:
        reader = found.read_by if find_format(found.format) else None
    except CatalogError:
        reader = None
    if reader is not target:
        why = (
            f"the compiled flow has no converter for {found.method}"
            if target is Target.ENGINE
            else "the PyTorch flow reads modelopt's checkpoints, FP8 in blocks and MXFP4, and passes over "
            "other configurations without a word"
        )
        flag = "" if found.format == quant else f" --quant {found.format}"
        there = READABLE if reader is None else f"--target {reader.value}{flag}"
        raise ModelSourceError(f"{what}; {why}", there, OWN_QUANTISATION)
    if not _same_format(found.format, quant):
        raise _other_format(checkpoint, quant)
    if target is Target.LLMAPI:
        return Recipe("direct", quant, found.group_size)
    if _imports(checkpoint.model_type, version):
        return Recipe("convert", quant, found.group_size, source_quant=found.algo)
    raise ModelSourceError(
        f"{what}: the converters read AutoAWQ and GPTQ of {', '.join(_IMPORT_TYPES)} since TensorRT-LLM "
        f"{_IMPORT_SINCE}; this is {checkpoint.model_type} for {version}",
        OWN_QUANTISATION,
    )


def with_kv(recipe: Recipe, kv_dtype: str, *, target: Target, what: str) -> Recipe:
    """The way that also gives a KV cache in ``kv_dtype``.

    convert_checkpoint.py calibrates an INT8 cache of 16-bit weights and no other; FP8 scales are
    quantize.py's, also where the weights stay as they are (--qformat full_prec, int8_wo, int4_wo).

    Raises:
        ModelSourceError: the weights are quantised already, so that nothing can be calibrated with them.
    """
    if target is not Target.ENGINE or recipe.method != "convert" or kv_dtype == "auto":
        return recipe
    if recipe.source_quant is not None:
        raise ModelSourceError(
            f"{what}: a KV cache in {kv_dtype} is calibrated with 16-bit weights, and these are quantised",
            "--kv-dtype auto",
            f"--quant awq of the 16-bit weights: quantize.py makes both (--kv_cache_dtype {kv_dtype})",
        )
    return replace(recipe, method="quantise") if kv_dtype == "fp8" else recipe


def _from_sixteen_bit(checkpoint: Checkpoint, quant: str, target: Target, group_size: int | None) -> Recipe:
    fmt = find_format(quant)
    runs, why = format_support(fmt, None, target)
    if not runs:
        there = ", ".join(f"--target {other.value}" for other in fmt.targets)
        raise ModelSourceError(why, there, "--quant awq")
    if fmt.needs_checkpoint:
        raise ModelSourceError(
            f"{fmt.name} is read from a checkpoint that is in it, and none of {checkpoint.folder} is known",
            f"give a {fmt.name} checkpoint with --weights",
            "--quant awq is calibrated here",
        )
    if quant in CALIBRATED_FORMATS:
        return Recipe("quantise", quant, group_size or fmt.group_size)
    if target is Target.ENGINE:
        return Recipe("convert", quant)
    return Recipe("direct", quant)


def _same_format(found: str, wanted: str) -> bool:
    return found == wanted or (found in _SIXTEEN_BIT and wanted in _SIXTEEN_BIT)


def _other_format(checkpoint: Checkpoint, quant: str) -> ModelSourceError:
    return ModelSourceError(
        f"{checkpoint.folder} is in {checkpoint.format}, and the plan is for {quant}; what is quantised "
        "once is not "
        "quantised again",
        f"--quant {checkpoint.format}",
        "give the 16-bit weights",
    )


def note_for_sibling(sibling: Sibling, original: Sequence[str] | str) -> str:
    """The sentence that tells that a published checkpoint is taken instead of calibrating."""
    return (
        f"taking {sibling.repo} ({sibling.method}), published for {original}; --calibrate makes our own "
        "from the "
        "16-bit weights"
    )
