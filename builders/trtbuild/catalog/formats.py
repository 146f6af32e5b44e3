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


class TargetRule(_Frozen):
    """Where one target runs a format: ranges of compute capability, both ends included. Empty: everywhere."""

    sm: tuple[tuple[float, float], ...] = ()
    unconfirmed: tuple[tuple[float, float], ...] = ()
    refused: str = ""


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


def format_support(fmt: Format | KvDtype, gpu: Gpu | None, target: Target) -> tuple[bool, str]:
    """Whether ``target`` runs the format on ``gpu``, and the reason when it does not (or is not confirmed).

    ``gpu`` None asks about the target alone.
    """
    rule = fmt.targets.get(target)
    if rule is None:
        served = ", ".join(other.value for other in fmt.targets)
        why = fmt.refused_targets.get(target, f"{fmt.name} is served by the target {served}")
        return False, why
    if gpu is None or not rule.sm:
        return True, ""
    if not _inside(gpu.capability, rule.sm):
        return False, f"{gpu.name} has SM {gpu.sm}: {rule.refused}"
    if _inside(gpu.capability, rule.unconfirmed):
        return True, f"{fmt.name} on SM {gpu.sm} breaks no known rule, but nobody has shown it to run"
    return True, ""


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
