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
from trtbuild.spec import LlmSpec


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


def default_name(model: str) -> str:
    """The repository name of ``--model model``: a catalogue name as typed, else the last part of it."""
    folder = Path(model)
    if "/" not in model and not folder.is_dir():
        return model.strip().lower()
    last = folder.name if folder.is_dir() else model.rsplit("/", 1)[-1]
    try:
        return find_model(model).name
    except CatalogError:
        return re.sub(r"[^a-z0-9._-]+", "-", last.lower()).strip("-._") or "model"


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
        ModelSourceError: a folder whose config.json cannot be used.
    """
    name = spec.name or default_name(spec.model)
    record: ModelRecord | None = None
    if Path(spec.model).is_dir():
        source = str(Path(spec.model))
        architecture = from_hf_config(Path(spec.model))
    else:
        try:
            record = find_model(spec.model)
            source, architecture = record.id, from_record(record)
        except CatalogError:
            source = spec.model
            if gguf_metadata is not None:
                architecture = from_gguf(gguf_metadata)
            elif weights is not None and (weights.path / "config.json").is_file():
                architecture = from_hf_config(weights.path)
            elif Path(spec.model).exists():
                raise ModelSourceError(
                    f"{spec.model} is a file; a model is a catalogue name, a Hugging Face id or a folder",
                    f"give the folder, or --weights {spec.model} beside a catalogue name",
                ) from None
            else:
                raise
    found = ModelSource(spec=spec, name=name, source=source, architecture=architecture, record=record)
    return _with_weights(found, weights)


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
