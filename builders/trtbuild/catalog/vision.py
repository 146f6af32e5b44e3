"""Vision pipelines as data: files, checksums, tensors and measured costs (``data/vision.yaml``)."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from trtbuild.errors import CatalogError


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PackageRow(_Frozen):
    """The distribution that carries a pipeline's weights."""

    name: str
    version: str
    install: str  # the command that brings it, for messages


class TensorRow(_Frozen):
    """A tensor of a network as its Triton config declares it."""

    name: str
    dtype: str  # Triton's name without TYPE_: FP32, INT64, …
    dims: tuple[int, ...]  # without the batch dimension; -1 is free


class WorkspaceRow(_Frozen):
    """Memory that one instance needs beside its weights, linear in the elements of its input."""

    session_bytes: int  # a loaded session before its first run
    bytes_per_element: int  # growth while it runs
    max_elements: int  # of one picture or line at its largest, all channels

    def at_batch(self, batch_size: int) -> int:
        """Bytes of one instance that runs ``batch_size`` of the largest inputs at once."""
        return self.session_bytes + self.bytes_per_element * self.max_elements * batch_size


class NetworkRow(_Frozen):
    """One network of a pipeline."""

    role: str  # the suffix of its model name: det, cls, rec
    file: str  # path inside the distribution
    bytes: int
    sha256: str
    inputs: tuple[TensorRow, ...]
    outputs: tuple[TensorRow, ...]
    best_of: str | None = None  # score output behind which best_id and best_score are appended
    instances: int
    max_batch_size: int
    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_us: int
    shm_bytes: int  # of one instance where it is a Python process
    workspace: WorkspaceRow

    @property
    def read_outputs(self) -> tuple[str, ...]:
        """Names of the outputs that the front asks for."""
        return ("best_id", "best_score") if self.best_of else tuple(output.name for output in self.outputs)


class FrontRow(_Frozen):
    """The model that decodes pictures and calls the networks; figures are of one instance."""

    instances: int
    max_picture_pixels: int
    decode_bytes_per_pixel: int
    host_bytes: int
    shm_bytes: int
    parameters: dict[str, str]  # of its Triton config


class PipelineRow(_Frozen):
    """A vision pipeline of several networks behind a front of its own."""

    title: str
    task: str
    package: PackageRow
    licence: str
    source: str
    front: FrontRow
    networks: tuple[NetworkRow, ...]

    def network(self, role: str) -> NetworkRow:
        """The network of a role.

        Raises:
            CatalogError: if the pipeline has no such role.
        """
        for row in self.networks:
            if row.role == role:
                return row
        raise CatalogError(
            f"the pipeline has no network {role!r}", "roles: " + ", ".join(row.role for row in self.networks)
        )


class FileRow(_Frozen):
    """A file that an installed distribution carries."""

    package: PackageRow
    file: str
    sha256: str


class ModelRow(_Frozen):
    """A single network as a package carries it, with what a spec would have to say of it."""

    title: str
    task: str
    weights: FileRow
    converter: Literal["darknet", "efficientnet-lite0"]  # what makes an ONNX graph of the file
    extra: FileRow | None = None  # a second file that the converter reads, such as Darknet's .cfg
    labels: FileRow
    licence: str
    source: str
    preprocess: dict[str, Any]  # of the spec
    postprocess: dict[str, Any] = {}

    @property
    def package(self) -> PackageRow:
        """The distribution that carries the weights."""
        return self.weights.package


@lru_cache(maxsize=1)
def entries() -> dict[str, PipelineRow | ModelRow]:
    """All that the catalogue has for pictures, by name."""
    text = resources.files("trtbuild.catalog").joinpath("data/vision.yaml").read_text(encoding="utf-8")
    return {
        name: (PipelineRow if "networks" in row else ModelRow).model_validate(row)
        for name, row in yaml.safe_load(text).items()
    }


def entry(name: str) -> PipelineRow | ModelRow:
    """What the catalogue has under a name.

    Raises:
        CatalogError: for a name that is not in the catalogue.
    """
    try:
        return entries()[name]
    except KeyError:
        raise CatalogError(
            f"no vision pipeline is called {name!r}",
            "known pipelines: " + ", ".join(sorted(entries())),
            "a model file of your own: `model: FILE.onnx`, or trtbuild add-vision NAME FILE.onnx",
        ) from None


def pipeline(name: str) -> PipelineRow:
    """The pipeline of several networks called ``name``.

    Raises:
        CatalogError: for a name that is not in the catalogue, or is a single network's.
    """
    row = entry(name)
    if isinstance(row, ModelRow):
        raise CatalogError(f"{name} is a single network")
    return row
