"""The GPU catalogue (``data/gpus.yaml``) and the many ways to write a GPU's name."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache

from pydantic import BaseModel, ConfigDict

from trtbuild.catalog.datafile import read_data
from trtbuild.errors import CatalogError

_GIB = 1 << 30
_MIB = 1 << 20
# Where only nvidia-smi's memory.total is known: the driver keeps 1.7 % at most on the cards of which both
# figures were read (T4; 1.1 % on an A100), rounded up.
DRIVER_RESERVE = 0.02
# Where nothing was read: nominal memory less 3 % (GH200-96GB: 1.6 %).
NOMINAL_RESERVE = 0.03

# MIG: slices of the chip → eighths of its memory (NVIDIA's MIG User Guide, "Supported MIG Profiles").
_MEMORY_EIGHTHS = {7: {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}, 4: {1: 2, 2: 4, 4: 8}}
# Memory of a slice below its share of the whole: 9.50 GiB of 79.25 / 8 on an A100-80GB (1g.10gb), rounded up.
MIG_RESERVE = 0.05
# Profiles with more memory than their slice's usual share, such as 1g.20gb of 80 GB: eighths.
_LARGER_EIGHTHS = {7: {1: 2}}
# A profile's name rounds its share of what the driver leaves: 1g.23gb is an eighth of a B200's 192 GB.
_PROFILE_ROUNDING = 0.15
_SLICE = re.compile(r"(?:^|[:/\s-])(\d)g(?:\.(\d+)gb)?(?:\+[a-z.]+)?$", re.IGNORECASE)
_NAME_BEFORE_SLICE = re.compile(r"(?:\bmig)?[:/\s-]*$", re.IGNORECASE)
_CATALOGUE = "`trtbuild gpus` lists the catalogue"
_BRANDS = re.compile(r"nvidia|geforce|tesla|quadro")
# Well-known processors that are left out on purpose, squeezed, and why.
_LEFT_OUT = (
    (
        re.compile(r"(v100|p100|p40|p4|k80|m40|m60|titanv|titanxp?|gtx\d+|gv100)(pcie|sxm2?|dgxs)?\d*g?b?"),
        "it is older than Turing (SM 7.5), where the catalogue begins",
    ),
    (
        re.compile(r"(dgx)?spark|gb10|(agx|jetson|orin|xavier|thor|nano|nx|t\d000)+\d*(super)?\d*g?b?"),
        "it shares one memory between GPU and CPU, and the plan counts them as two",
    ),
    (
        re.compile(r"(amd|intel)?(instinct)?(mi\d{3}[ax]?|gaudi\d?)"),
        "TensorRT-LLM runs on NVIDIA's GPUs only",
    ),
)


class Gpu(BaseModel):
    """One GPU. Rates are dense TFLOPS/TOPS, bandwidths GB/s; None where the chip has no such unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    chip: str
    form: str | None = None
    memory_gb: int
    aliases: tuple[str, ...] = ()
    arch: str
    sm: str
    nvidia_smi_mib: int | None = None
    usable_gib: float | None = None
    mem_bw_gbs: float | None = None
    fp16_tflops: float | None = None
    fp8_tflops: float | None = None
    int8_tops: float | None = None
    fp4_tflops: float | None = None
    mig_max: int = 0
    nvlink_gbs: float | None = None
    pcie: str | None = None
    unverified: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    note: str | None = None

    @property
    def memory_bytes(self) -> int:
        """What can be planned with: cudaMemGetInfo's total, else memory.total less the driver's reserve."""
        if self.usable_gib is not None:
            return int(self.usable_gib * _GIB)
        if self.nvidia_smi_mib is not None:
            return int(self.nvidia_smi_mib * _MIB * (1 - DRIVER_RESERVE))
        return int(self.memory_gb * _GIB * (1 - NOMINAL_RESERVE))

    @property
    def capability(self) -> float:
        """Compute capability as a number, such as 8.9."""
        return float(self.sm)

    @property
    def is_slice(self) -> bool:
        """Whether it is a MIG slice (`mig_slice` names it), no whole GPU."""
        return ":" in self.name


@dataclass(frozen=True)
class GpuMatch:
    """A GPU and what was assumed to find it; ``note`` is empty when the name was exact."""

    gpu: Gpu
    note: str = ""


@lru_cache(maxsize=1)
def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue, in its order."""
    return tuple(Gpu.model_validate(row) for row in read_data("gpus.yaml"))


def find_gpu(name: str) -> GpuMatch:
    """The GPU that ``name`` means, without regard to case, dashes, spaces, brand words or a trailing B or GB.

    A name without its form factor takes the SXM row and says so. ``NAME:3g`` is a MIG slice, as are
    ``NAME-3g.40gb`` and the name that nvidia-smi gives it (``… MIG 3g.40gb``).

    Raises:
        CatalogError: an unknown name (with the nearest ones), one that several GPUs share, or a slice that
            the GPU has not.
    """
    if found := _SLICE.search(name):
        before = _NAME_BEFORE_SLICE.sub("", name[: found.start()])
        if not _squeeze(before):
            raise CatalogError(
                f"{name!r} is a MIG slice, and not of which GPU", "write both: a100-80g:1g.10gb"
            )
        whole = find_gpu(before)
        memory_gb = int(found[2]) if found[2] else None
        return GpuMatch(mig_slice(whole.gpu, int(found[1]), memory_gb), whole.note)
    key = _squeeze(name)
    exact, loose = _index()
    if key in exact:
        return GpuMatch(exact[key])
    rows = loose.get(key, ())
    sxm = [gpu for gpu in rows if gpu.form == "SXM"]
    chosen = rows if len(rows) == 1 else tuple(sxm)
    if len(chosen) == 1:
        gpu = chosen[0]
        others = ", ".join(other.name for other in rows if other is not gpu)
        return GpuMatch(gpu, f"{name} is taken as {gpu.name}; the other forms are {others}" if others else "")
    if rows:
        raise CatalogError(
            f"{name!r} can mean {len(rows)} GPUs", "write which: " + ", ".join(gpu.name for gpu in rows)
        )
    for left_out, why in _LEFT_OUT:
        if left_out.fullmatch(key):
            raise CatalogError(f"{name!r} is not in the catalogue: {why}", _CATALOGUE)
    near = difflib.get_close_matches(key, [*exact, *loose], n=8, cutoff=0.5)
    names = dict.fromkeys(gpu.name for k in near for gpu in ((exact[k],) if k in exact else loose[k]))
    remedies = ["did you mean " + ", ".join(list(names)[:5]) + "?"] if names else []
    raise CatalogError(
        f"no GPU in the catalogue is called {name!r}",
        *remedies,
        _CATALOGUE,
        "on a machine that has it, leave out --gpu: there it is planned by what nvidia-smi says",
    )


def mig_slices(gpu: Gpu) -> tuple[int, ...]:
    """Sizes of MIG slices that the GPU can be split into, the whole left out."""
    sizes = _MEMORY_EIGHTHS.get(gpu.mig_max, {})
    return tuple(size for size in sizes if size < gpu.mig_max)


def mig_slice(gpu: Gpu, size: int, memory_gb: int | None = None) -> Gpu:
    """A MIG slice as a GPU of its own: its share of arithmetic and memory; slices have no peer access.

    Args:
        memory_gb: of the profile (``1g.20gb``); default: the usual share of a slice of this size.

    Raises:
        CatalogError: the GPU has no such slice.
    """
    sizes = mig_slices(gpu)
    if size not in sizes:
        have = ", ".join(f"{gpu.name}:{one}g" for one in sizes)
        raise CatalogError(
            f"{gpu.name} has no MIG slice {size}g", have or f"it cannot be split: --gpu {gpu.name}"
        )
    usual = _MEMORY_EIGHTHS[gpu.mig_max][size]
    eighths = usual if memory_gb is None else _eighths_of_profile(gpu, size, memory_gb)
    memory, chip = eighths / 8, size / gpu.mig_max
    name = f"{gpu.name}:{size}g" if eighths == usual else f"{gpu.name}:{size}g.{memory_gb}gb"
    rates = {key: getattr(gpu, key) for key in ("fp16_tflops", "fp8_tflops", "int8_tops", "fp4_tflops")}
    return gpu.model_copy(
        update={
            "name": name,
            "aliases": (),
            "memory_gb": round(gpu.memory_gb * memory),
            "nvidia_smi_mib": None,
            "usable_gib": gpu.memory_bytes / _GIB * memory * (1 - MIG_RESERVE),
            "mem_bw_gbs": gpu.mem_bw_gbs and gpu.mem_bw_gbs * memory,
            **{key: rate and rate * chip for key, rate in rates.items()},
            "mig_max": 0,
            "nvlink_gbs": None,
            "unverified": (*gpu.unverified, "usable_gib"),
        }
    )


def _eighths_of_profile(gpu: Gpu, size: int, memory_gb: int) -> int:
    """Eighths of the memory that a profile such as ``1g.20gb`` has."""
    larger = _LARGER_EIGHTHS.get(gpu.mig_max, {}).get(size)
    shares = [_MEMORY_EIGHTHS[gpu.mig_max][size], *([larger] if larger else [])]
    near = min(shares, key=lambda share: abs(gpu.memory_gb * share / 8 - memory_gb))
    if abs(gpu.memory_gb * near / 8 - memory_gb) > _PROFILE_ROUNDING * memory_gb:
        have = " or ".join(f"about {gpu.memory_gb * share / 8:.0f} GB" for share in shares)
        raise CatalogError(
            f"{gpu.name} has no MIG slice {size}g.{memory_gb}gb: {size}g of it has {have}",
            f"--gpu {gpu.name}:{size}g",
        )
    return near


def unlisted_gpu(*, name: str, nvidia_smi_bytes: int, sm: str) -> Gpu:
    """A GPU that this machine has and the catalogue has not, by what nvidia-smi says of it."""
    return Gpu(
        name=name,
        chip=name,
        memory_gb=round(nvidia_smi_bytes / _GIB),
        arch="unknown",
        sm=sm,
        nvidia_smi_mib=nvidia_smi_bytes // _MIB,
        unverified=("usable_gib",),
        source=("nvidia-smi of this machine",),
    )


def _squeeze(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _BRANDS.sub("", name.lower()))


@lru_cache(maxsize=1)
def _index() -> tuple[dict[str, Gpu], dict[str, tuple[Gpu, ...]]]:
    exact: dict[str, Gpu] = {}
    loose: dict[str, list[Gpu]] = {}
    for gpu in all_gpus():
        memory = [f"{gpu.memory_gb}{unit}" for unit in ("", "g", "gb", "b")]
        forms = {None: [], "SXM": ["sxm", "sxm4", "sxm5"], "PCIe": ["pcie"], "NVL": ["nvl"]}[gpu.form]
        chip = _squeeze(gpu.chip)
        for spelling in (gpu.name, *gpu.aliases):
            exact[_squeeze(spelling)] = gpu
            exact.setdefault(_squeeze(spelling).removesuffix("b"), gpu)
        for form in forms or [""]:
            for amount in memory:
                exact.setdefault(chip + form + amount, gpu)
                exact.setdefault(chip + amount + form, gpu)
            if forms:
                loose.setdefault(chip + form, []).append(gpu)
        for amount in ["", *memory]:
            loose.setdefault(chip + amount, []).append(gpu)
    return exact, {key: tuple(dict.fromkeys(rows)) for key, rows in loose.items()}
