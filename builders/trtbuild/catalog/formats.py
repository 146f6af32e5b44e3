"""Weight formats and KV types (``data/formats.yaml``): what they store and where they run."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from trtbuild.catalog.datafile import read_data
from trtbuild.catalog.gpus import Gpu
from trtbuild.errors import CatalogError
from trtbuild.spec import Target

_Row = TypeVar("_Row", bound="_Supported")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LaterRange(_Frozen):
    """Compute capabilities that a later TensorRT-LLM added; ``dense``: for models without experts."""

    sm: tuple[float, float]
    since: str
    dense: bool = False


class TargetRule(_Frozen):
    """Where one target runs a format: ranges of compute capability, both ends included. Empty: everywhere.

    ``below``, ``above`` and ``refused`` say why a capability is under, over or between them.
    """

    sm: tuple[tuple[float, float], ...] = ()
    unconfirmed: tuple[tuple[float, float], ...] = ()
    since: str | None = None
    later: tuple[LaterRange, ...] = ()
    below: str = ""
    above: str = ""
    refused: str = ""
    only: str = ""

    def why_not(self, capability: float) -> str:
        """Why a capability that is in no range is not."""
        bounds = [bound for range_ in (*self.sm, *(later.sm for later in self.later)) for bound in range_]
        if capability < min(bounds) and self.below:
            return self.below
        return self.above if capability > max(bounds) and self.above else self.refused or self.above


class _Supported(_Frozen):
    name: str
    title: str
    aliases: tuple[str, ...] = ()
    bits: int
    targets: dict[Target, TargetRule]
    refused_targets: dict[Target, str] = {}
    source: tuple[str, ...] = ()


class Format(_Supported):
    """One weight format. Sizes are bits; ``groups`` lists the group sizes, the default first."""

    algo: str | None = None
    groups: tuple[int, ...] = ()
    block: int | None = None  # square blocks with one scale
    scale_bits: int = 0
    zero_bits: int = 0
    layers: Literal["none", "blocks", "experts", "file"] = "none"  # which linear layers are stored so
    calibrates: bool = False
    needs_checkpoint: bool = False  # read from a published checkpoint, not made here
    fp8_fmha: bool = False
    pads: bool = False  # the loader pads each rank's part to whole tiles
    quality: str | None = None

    @property
    def group_size(self) -> int | None:
        """The default group size."""
        return self.groups[0] if self.groups else None


class KvDtype(_Supported):
    """One type of the KV cache."""


@lru_cache(maxsize=1)
def all_formats() -> tuple[Format, ...]:
    """Every weight format, in the catalogue's order."""
    return tuple(Format.model_validate(row) for row in read_data("formats.yaml")["formats"])


@lru_cache(maxsize=1)
def all_kv_dtypes() -> tuple[KvDtype, ...]:
    """Every type of the KV cache."""
    return tuple(KvDtype.model_validate(row) for row in read_data("formats.yaml")["kv_dtypes"])


def find_format(name: str) -> Format:
    """The weight format called ``name`` (or an alias of it).

    Raises:
        CatalogError: an unknown name, with the choices.
    """
    return _find(name, all_formats(), "weight format", "`trtbuild formats` explains them")


def find_kv_dtype(name: str) -> KvDtype:
    """The KV type called ``name``.

    Raises:
        CatalogError: an unknown name, with the choices.
    """
    return _find(name, all_kv_dtypes(), "KV type", "leave it out for the type of the activations")


def format_support(
    fmt: Format | KvDtype,
    gpu: Gpu | None,
    target: Target,
    *,
    version: str | None = None,
    experts: bool = False,
) -> tuple[bool, str]:
    """Whether ``target`` runs the format on ``gpu``, and the reason when it does not (or is not confirmed).

    Args:
        gpu: None asks about the target alone.
        version: TensorRT-LLM's; None asks about the newest.
        experts: whether the model is a mixture of experts, for which some kernels are missing.
    """
    rule = fmt.targets.get(target)
    if rule is None:
        served = ", ".join(other.value for other in fmt.targets)
        why = fmt.refused_targets.get(target, f"{fmt.name} is served by the target {served}")
        return False, why
    if rule.since is not None and not _since(rule.since, version):
        return False, f"{fmt.name} came with TensorRT-LLM {rule.since}, and this is {version}"
    if gpu is None or not rule.sm:
        return True, ""
    if _inside(gpu.capability, rule.sm) and not _inside(gpu.capability, rule.unconfirmed):
        return True, ""
    for later in rule.later:
        if not _inside(gpu.capability, (later.sm,)):
            continue
        if not _since(later.since, version):
            since = f"{fmt.name} runs there since TensorRT-LLM {later.since}"
            return False, f"{gpu.name} has SM {gpu.sm}: {since}"
        if later.dense and experts:
            return False, f"{gpu.name} has SM {gpu.sm}: {fmt.name} has no kernels for experts there"
        return True, _UNCONFIRMED.format(name=fmt.name, sm=gpu.sm)
    if _inside(gpu.capability, rule.unconfirmed):
        return True, _UNCONFIRMED.format(name=fmt.name, sm=gpu.sm)
    return False, f"{gpu.name} has SM {gpu.sm}: {rule.why_not(gpu.capability)}"


_UNCONFIRMED = "{name} on SM {sm} breaks no known rule, but nobody has shown it to run"


def instead(
    fmt: Format | KvDtype, gpu: Gpu | None, target: Target, *, version: str | None = None
) -> tuple[str, ...]:
    """Names of what ``target`` does run on ``gpu`` in place of a format: the nearest width first.

    Formats that are only read from a published checkpoint are left out, as are those with a doubtful quality.
    """
    rows: tuple[Format | KvDtype, ...] = all_kv_dtypes() if isinstance(fmt, KvDtype) else all_formats()
    runs = [
        row
        for row in rows
        if row is not fmt
        and format_support(row, gpu, target, version=version) == (True, "")
        and not (isinstance(row, Format) and (row.needs_checkpoint or row.quality or row.layers == "file"))
    ]
    return tuple(row.name for row in sorted(runs, key=lambda row: abs(row.bits - fmt.bits)))


def _since(since: str, version: str | None) -> bool:
    from trtbuild.catalog.versions import version_key

    return version is None or version_key(version) >= version_key(since)


def _inside(capability: float, ranges: tuple[tuple[float, float], ...]) -> bool:
    return any(low <= capability <= high for low, high in ranges)


def _find(name: str, rows: tuple[_Row, ...], kind: str, help_: str) -> _Row:
    wanted = name.strip().lower()
    for row in rows:
        if wanted in (row.name, *row.aliases):
            return row
    names = [row.name for row in rows]
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    remedies = ["did you mean " + ", ".join(near) + "?"] if near else []
    raise CatalogError(f"no {kind} is called {name!r}", *remedies, "choose from " + ", ".join(names), help_)
