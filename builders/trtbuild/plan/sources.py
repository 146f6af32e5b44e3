"""Where a language model's facts come from: the catalogue, a folder with a config.json, or a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from trtbuild.catalog.models import ModelRecord, find_model
from trtbuild.errors import CatalogError, ModelSourceError
from trtbuild.plan.architecture import Architecture, from_gguf, from_hf_config, from_record
from trtbuild.plan.hf_config import group_size_of, kv_algo_of
from trtbuild.plan.model import Finding
from trtbuild.spec import LlmSpec

_LARGEST_PADDING = 0.02  # of the width; 29,568 to 29,696 is 0.4 %


class WeightsFile(Protocol):
    """Local weights, as `trtbuild.build.weights.inspect_weights` describes them."""

    @property
    def path(self) -> Path: ...
    @property
    def format(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True)
class ModelSource:
    """One language model of the spec with its facts.

    ``weights_format`` and ``weights_file_bytes`` are those of local weights, whether they are here
    (``weights_path``) or in a package that is not installed yet.
    """

    spec: LlmSpec
    name: str
    source: str
    architecture: Architecture
    record: ModelRecord | None = None
    weights_path: Path | None = None
    weights_format: str | None = None
    weights_file_bytes: int | None = None
    group_size: int | None = None  # of a folder's quantised weights
    kv_algo: str | None = None  # of the cache that a folder's quantisation was made for, as it says itself


def model_folder(model: str) -> Path | None:
    """The folder that ``--model model`` names; None: it is a catalogue name or a Hugging Face id.

    A catalogue name stays one beside a folder of that name without a config.json: every repository has such
    folders, and commands are run inside it.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return None
    if "/" in model or (folder / "config.json").is_file():
        return folder
    try:
        find_model(model)
    except CatalogError:
        return folder
    return None


def default_name(model: str) -> str:
    """The repository name of ``--model model``: a catalogue name as typed, else the last part of it."""
    folder = model_folder(model)
    if "/" not in model and folder is None:
        return model.strip().lower()
    last = folder.name if folder is not None else model.rsplit("/", 1)[-1]
    try:
        return find_model(model).name
    except CatalogError:
        return re.sub(r"[^a-z0-9._-]+", "-", last.lower()).strip("-._") or "model"


def name_of(llm: LlmSpec) -> str:
    """The name in the repository of a language model of the spec."""
    return llm.name or default_name(llm.model)


def resolve(
    spec: LlmSpec,
    *,
    weights: WeightsFile | None = None,
    gguf_metadata: Mapping[str, Any] | None = None,
) -> ModelSource:
    """The facts of one language model.

    Args:
        spec: what the user wrote.
        weights: local weights that were found for it.
        gguf_metadata: of those weights, if they are a GGUF file; used where the catalogue knows nothing.

    Raises:
        CatalogError: a name that the catalogue has not and that is no folder.
        ModelSourceError: a folder whose config.json cannot be used, or ``--weights`` of another model.
    """
    name = name_of(spec)
    folder = weights.path if weights is not None else spec.weights
    own = model_folder(spec.model)
    record: ModelRecord | None = None
    if own is not None:
        source = str(own)
        architecture = from_hf_config(own)
    else:
        try:
            record = find_model(spec.model)
            source, architecture = record.id, from_record(record)
        except CatalogError:
            source = spec.model
            if gguf_metadata is not None:
                architecture = from_gguf(gguf_metadata)
            elif folder is not None and (folder / "config.json").is_file():
                architecture = from_hf_config(folder)
            elif Path(spec.model).exists():
                raise ModelSourceError(
                    f"{spec.model} is a file; a model is a catalogue name, a Hugging Face id or a folder",
                    f"give the folder, or --weights {spec.model} beside a catalogue name",
                ) from None
            else:
                raise
    if spec.weights is not None and folder is not None:
        architecture = _as_weights_are(spec.model, architecture, folder, gguf_metadata)
    place = next((path for path in (folder, own) if path is not None and path.is_dir()), None)
    found = ModelSource(
        spec=spec,
        name=name,
        source=source,
        architecture=architecture,
        record=record,
        group_size=None if place is None else group_size_of(place),
        kv_algo=None if place is None else kv_algo_of(place),
    )
    return _with_weights(found, weights)


def _as_weights_are(
    model: str, described: Architecture, place: Path, gguf_metadata: Mapping[str, Any] | None
) -> Architecture:
    """The architecture of weights that were given beside a model's name, which must be that model's.

    Published checkpoints may have a wider MLP or vocabulary, padded to whole groups; theirs then count.
    """
    if gguf_metadata is not None:
        held = from_gguf(gguf_metadata)
    elif (place / "config.json").is_file() and not (place / "rank0.safetensors").is_file():
        held = from_hf_config(place)
    else:
        return described
    wanted, found = _shape(described), _shape(held)
    if gguf_metadata is not None:
        del found["vocab_size"]  # often padded there by other rules
    different = [
        f"{name} {size} instead of {wanted[name]}"
        for name, size in found.items()
        if size != wanted[name] and not _padded(name, size, wanted[name])
    ]
    if different:
        instead = [f"--model {place}, if those weights shall run"] if place.is_dir() else []
        raise ModelSourceError(
            f"{place} holds another model than {model}: {', '.join(different)}",
            f"give the weights of {model}",
            *instead,
        )
    return replace(described, ffn=held.ffn, vocab=held.vocab) if gguf_metadata is None else described


def _shape(architecture: Architecture) -> dict[str, int]:
    """What tells a model from another one, in the words of config.json."""
    moe, mla = architecture.moe, architecture.mla
    return {
        "num_hidden_layers": architecture.layers,
        "hidden_size": architecture.hidden,
        "intermediate_size": architecture.ffn,
        "num_attention_heads": architecture.heads,
        "num_key_value_heads": architecture.kv_heads,
        "vocab_size": architecture.vocab,
        "num_experts": moe.experts if moe else 0,
        "moe_intermediate_size": moe.ffn if moe else 0,
        "kv_lora_rank": mla.kv_rank if mla else 0,
    }


def _padded(name: str, size: int, plain: int) -> bool:
    return name in ("intermediate_size", "vocab_size") and 0 <= size - plain <= plain * _LARGEST_PADDING


def _with_weights(found: ModelSource, weights: WeightsFile | None) -> ModelSource:
    if weights is not None:
        return replace(
            found,
            weights_path=weights.path,
            weights_format=weights.format,
            weights_file_bytes=weights.size_bytes,
        )
    packaged = found.record.packaged_for(found.spec.quant) if found.record else None
    if packaged is not None:
        return replace(found, weights_format=packaged.format, weights_file_bytes=packaged.bytes)
    return found


def finding_on(id_: str, severity: str, source: ModelSource, message: str, remedy: str = "") -> Finding:
    """A finding on one model of the spec; its name is put before the message."""
    return Finding.model_validate(
        {"id": id_, "severity": severity, "message": f"{source.name}: {message}", "remedy": remedy}
    )
