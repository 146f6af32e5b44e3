"""Containers and TensorRT-LLM interfaces: ``data/containers.yaml``, ``data/trtllm_interfaces.yaml``.

A version is the rows that hold for it. Versions are ordered by ``version_key``: "0.19.0-25.04" (a container
built before the tag) < "0.19.0" < "0.19.0+25.05" (one built after it) < "0.20.0".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import lru_cache

from pydantic import BaseModel, ConfigDict

from trtbuild.catalog.datafile import read_data
from trtbuild.errors import CatalogError
from trtbuild.spec import Target

_VERSION = re.compile(r"(\d+(?:\.\d+)*)(?:\.post(\d+))?(?:([+-])(\d+(?:\.\d+)*))?")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def version_key(version: str) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Returns what versions are ordered by: the release, then -1, 0 or 1 for before, at and after its tag.

    Raises:
        CatalogError: for a text that is no version, pre-releases such as "1.2.0rc1" included.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        raise CatalogError(
            f"{version!r} is not a TensorRT-LLM version that can be compared",
            "give a released version such as 1.2.1, or a container such as 26.07",
        )
    release, post, sign, build = match.groups()
    numbers = tuple(int(part) for part in release.split("."))
    while len(numbers) < 3:
        numbers += (0,)
    if post is not None:
        numbers = (*numbers, 0)[:4]
        numbers = (*numbers, int(post))
    side = {"-": -1, "+": 1}.get(sign, 0)
    return numbers, side, tuple(int(part) for part in build.split(".")) if build else ()


class _Ranged(_Frozen):
    """A row that holds from ``since`` up to, but without, ``until``."""

    since: str | None = None
    until: str | None = None

    def holds(self, version: str) -> bool:
        key = version_key(version)
        if self.since is not None and key < version_key(self.since):
            return False
        return self.until is None or key < version_key(self.until)


class Tensor(_Ranged):
    """An input or output as a model configuration declares it.

    ``dims`` are without the batch dimension, -1 is free; ``reshape`` is what the backend sees instead.
    ``setting`` names the template's placeholder for which ``dtype`` was filled in.
    """

    name: str
    dtype: str  # Triton's name without TYPE_
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    optional: bool = False
    ragged: bool = False
    setting: str | None = None
    was: str | None = None
    left_out: str | None = None


class Parameter(_Ranged):
    """A key of a model's ``parameters``. ``default`` is the backend's own; None: nothing is assumed."""

    name: str
    default: str | None = None
    must_exist: bool = False
    was: str | None = None
    left_out: str | None = None


class Interface(_Frozen):
    """What one model of NVIDIA's classic repository declares in one version."""

    version: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parameters: tuple[Parameter, ...]

    def input_names(self) -> frozenset[str]:
        return frozenset(tensor.name for tensor in self.inputs)

    def generated(self) -> Interface:
        """The part of it that this project's own models declare."""
        return Interface(
            version=self.version,
            inputs=tuple(tensor for tensor in self.inputs if tensor.left_out is None),
            outputs=tuple(tensor for tensor in self.outputs if tensor.left_out is None),
            parameters=tuple(parameter for parameter in self.parameters if parameter.left_out is None),
        )


class Wire(_Ranged):
    """An ensemble tensor that has another name than the tensor of the model it goes into or comes out of."""

    model: str
    side: str  # inputs or outputs
    name: str
    tensor: str


class _ModelRows(_Frozen):
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parameters: tuple[Parameter, ...]


class _Interfaces(_Frozen):
    models: dict[str, _ModelRows]
    wiring: tuple[Wire, ...]


class Paths(_Frozen):
    """Where things are inside a container."""

    tritonserver: str
    backends: str
    executor_worker: str
    examples: str
    templates: str


class _Feature(_Frozen):
    since: str


class _Capability(_Ranged):
    sm: str


class Advisory(_Frozen):
    """Published vulnerabilities of the server releases before ``below``."""

    below: str
    ids: tuple[str, ...]
    what: str


class _ContainerRow(_Frozen):
    release: str
    server: str
    trtllm: str
    tensorrt: str
    cuda: str
    driver: str
    python: str
    image_gb: float
    vision_release: str
    vision_cuda: str
    interface: str | None = None


class _Containers(_Frozen):
    image: str
    vision_image: str
    paths: Paths
    features: dict[str, _Feature]
    python_shm_bytes: int
    compute_capabilities: tuple[_Capability, ...]
    targets: dict[Target, _Ranged]
    security: tuple[Advisory, ...]
    containers: tuple[_ContainerRow, ...]


class Container(_Frozen):
    """One Triton release with TensorRT-LLM."""

    release: str  # 26.07
    image: str
    server: str  # tritonserver's own version
    trtllm: str
    tensorrt: str
    cuda: str
    driver: str  # of the release notes' matrix
    python: str
    image_bytes: int  # compressed, as published
    interface: str  # version whose rows of trtllm_interfaces.yaml hold
    vision_image: str  # its backends are copied in for vision models
    python_shm_bytes: int  # /dev/shm of one Python instance when it starts
    paths: Paths
    features: frozenset[str]  # of containers.yaml `features`
    targets: frozenset[Target]
    sms: tuple[str, ...]  # compute capabilities that its compiled engines run on
    advisories: tuple[Advisory, ...]


@lru_cache(maxsize=1)
def _interfaces() -> _Interfaces:
    return _Interfaces.model_validate(read_data("trtllm_interfaces.yaml"))


@lru_cache(maxsize=256)
def interface(version: str, model: str) -> Interface:
    """What ``model`` of NVIDIA's classic repository declares in ``version``.

    Args:
        version: TensorRT-LLM version or ``Container.interface``.
        model: tensorrt_llm, preprocessing, postprocessing, ensemble or tensorrt_llm_bls.

    Raises:
        CatalogError: for an unknown model, or a version outside the table.
    """
    tables = _interfaces().models
    if model not in tables:
        raise CatalogError(f"NVIDIA's repository has no model {model!r}", "models: " + ", ".join(tables))
    _check_known(version)
    rows = tables[model]
    return Interface(
        version=version,
        inputs=tuple(row for row in rows.inputs if row.holds(version)),
        outputs=tuple(row for row in rows.outputs if row.holds(version)),
        parameters=tuple(row for row in rows.parameters if row.holds(version)),
    )


def wiring(version: str, model: str, side: str) -> dict[str, str]:
    """Names of ``model``'s tensors → the ensemble tensors they are wired to, where the names differ."""
    _check_known(version)
    return {
        wire.name: wire.tensor
        for wire in _interfaces().wiring
        if wire.model == model and wire.side == side and wire.holds(version)
    }


def _check_known(version: str) -> None:
    oldest, newest = containers()[-1], containers()[0]
    if not version_key(oldest.interface) <= version_key(version) <= version_key(newest.interface):
        raise CatalogError(
            f"TensorRT-LLM {version} is outside the versions whose interface is known",
            f"known: {oldest.trtllm} to {newest.trtllm}; choose one with --container or --trtllm",
        )


@lru_cache(maxsize=1)
def _llmapi_classes() -> dict[str, str]:
    table: dict[str, list[str]] = read_data("llmapi_models.yaml")["classes"]
    return {name: version for version, names in table.items() for name in names}


def llmapi_since(hf_class: str) -> str | None:
    """The first version of TensorRT-LLM whose LLM API (PyTorch flow) loads a class of config.json's
    ``architectures``; None: none that is known.
    """
    return _llmapi_classes().get(hf_class)


def release_key(release: str) -> tuple[int, ...]:
    """Orders releases such as 25.10 (year and month)."""
    return tuple(int(part) for part in release.split("."))


@lru_cache(maxsize=1)
def containers() -> tuple[Container, ...]:
    """All known containers, newest first."""
    table = _Containers.model_validate(read_data("containers.yaml"))
    return tuple(_container(table, row) for row in table.containers)


def _container(table: _Containers, row: _ContainerRow) -> Container:
    key = release_key(row.release)
    return Container(
        release=row.release,
        image=table.image.format(release=row.release),
        server=row.server,
        trtllm=row.trtllm,
        tensorrt=row.tensorrt,
        cuda=row.cuda,
        driver=row.driver,
        python=row.python,
        image_bytes=round(row.image_gb * 1e9),
        interface=row.interface or row.trtllm,
        vision_image=table.vision_image.format(release=row.vision_release),
        python_shm_bytes=table.python_shm_bytes,
        paths=table.paths,
        features=frozenset(name for name, row_ in table.features.items() if key >= release_key(row_.since)),
        targets=frozenset(target for target, range_ in table.targets.items() if range_.holds(row.trtllm)),
        sms=tuple(row_.sm for row_ in table.compute_capabilities if row_.holds(row.trtllm)),
        advisories=tuple(entry for entry in table.security if key < release_key(entry.below)),
    )


_IMAGE = re.compile(r"(?:[\w./:-]*/tritonserver:)?(\d\d\.\d\d)-trtllm-python-py3")


def find_container(release: str) -> Container:
    """The container called ``release``, such as "25.10", or as its image is called.

    Raises:
        CatalogError: for a release that is not in the table.
    """
    image = _IMAGE.fullmatch(release.strip())
    for container in containers():
        if container.release == (image[1] if image else release):
            return container
    near = _near(release)
    raise CatalogError(
        f"no TensorRT-LLM container {release!r} is known",
        *([f"did you mean {' or '.join(near)}?"] if near else []),
        f"known: {containers()[-1].release} to {containers()[0].release}, one a month",
    )


def _near(release: str) -> list[str]:
    """What an unknown release was meant as: 25.1 is 25.01, or 25.10 as YAML reads it."""
    known = [container.release for container in containers()]
    year, _, month = release.strip().removesuffix("-trtllm-python-py3").rpartition(".")
    meant = [f"{year}.{month.zfill(2)}", f"{year}.{month}0", f"{year}.{month[:2]}"]
    found = sorted({other for other in meant if other in known})
    return found or difflib.get_close_matches(release, known, n=2, cutoff=0.75)


def container_of_trtllm(version: str) -> Container:
    """The newest container that ships TensorRT-LLM ``version`` ("1.0.0", "v1.0.0", or "1.0" for the newest
    1.0.x).

    Raises:
        CatalogError: if none does.
    """
    number = version.strip().removeprefix("v")
    for container in containers():
        if container.trtllm == number or container.trtllm.startswith(f"{number}."):
            return container
    known = ", ".join(dict.fromkeys(container.trtllm for container in containers()))
    raise CatalogError(f"no container ships TensorRT-LLM {version}", f"shipped: {known}")


def default_container(
    *, target: Target, sm: str | None, takes: Callable[[Container], str | None] | None = None
) -> tuple[Container, str]:
    """The newest container for a target, a GPU and whatever else must hold, and why that one.

    Args:
        target: engine or llmapi.
        sm: compute capability such as "8.9"; None leaves it open.
        takes: a further condition, such as a weight format's: None if the container will do, else why not.

    Raises:
        CatalogError: if no container will do.
    """
    refused = ""
    for container in containers():
        reason = _refusal(container, target, sm, takes)
        if reason is None:
            why = f"{container.release} (TensorRT-LLM {container.trtllm}) is the newest that takes this"
            return container, f"{why}; newer ones: {refused}" if refused else why
        refused = refused or f"{container.release}: {reason}"
    raise CatalogError(
        f"no known container serves target {target.value} here; {refused}",
        "choose another GPU, format or target; `trtbuild formats --gpu NAME` shows what goes together",
    )


def _refusal(
    container: Container, target: Target, sm: str | None, takes: Callable[[Container], str | None] | None
) -> str | None:
    if target not in container.targets:
        return f"TensorRT-LLM {container.trtllm} has no target {target.value}"
    if sm is not None and sm not in container.sms:
        return f"TensorRT-LLM {container.trtllm} does not run on compute capability {sm}"
    return takes(container) if takes is not None else None
