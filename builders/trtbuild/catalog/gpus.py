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
_SLICE = re.compile(r"(?:[:\s]|\bmig\s)\s*(\d)g(?:\.\d+gb)?$", re.IGNORECASE)
_BRANDS = re.compile(r"nvidia|geforce|tesla|quadro")


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

    A name without its form factor takes the SXM row and says so. ``NAME:3g`` is a MIG slice, as is the name
    that nvidia-smi gives it (``… MIG 3g.40gb``).

    Raises:
        CatalogError: an unknown name (with the nearest ones), one that several GPUs share, or a slice that
            the GPU has not.
    """
    if found := _SLICE.search(name):
        whole = find_gpu(re.sub(r"[:\s]+(mig)?$", "", name[: found.start()], flags=re.IGNORECASE))
        return GpuMatch(mig_slice(whole.gpu, int(found[1])), whole.note)
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
    near = difflib.get_close_matches(key, [*exact, *loose], n=8, cutoff=0.5)
    names = dict.fromkeys(gpu.name for k in near for gpu in ((exact[k],) if k in exact else loose[k]))
    remedies = ["did you mean " + ", ".join(list(names)[:5]) + "?"] if names else []
    raise CatalogError(
        f"no GPU in the catalogue is called {name!r}", *remedies, "`trtbuild gpus` lists the catalogue"
    )


def mig_slices(gpu: Gpu) -> tuple[int, ...]:
    """Sizes of MIG slices that the GPU can be split into, the whole left out."""
    sizes = _MEMORY_EIGHTHS.get(gpu.mig_max, {})
    return tuple(size for size in sizes if size < gpu.mig_max)


def mig_slice(gpu: Gpu, size: int) -> Gpu:
    """A MIG slice as a GPU of its own: its share of arithmetic and memory; slices have no peer access.

    Raises:
        CatalogError: the GPU has no such slice.
    """
    sizes = mig_slices(gpu)
    if size not in sizes:
        have = ", ".join(f"{gpu.name}:{one}g" for one in sizes)
        raise CatalogError(
            f"{gpu.name} has no MIG slice {size}g", have or f"it cannot be split: --gpu {gpu.name}"
        )
    memory, chip = _MEMORY_EIGHTHS[gpu.mig_max][size] / 8, size / gpu.mig_max
    rates = {key: getattr(gpu, key) for key in ("fp16_tflops", "fp8_tflops", "int8_tops", "fp4_tflops")}
    return gpu.model_copy(
        update={
            "name": f"{gpu.name}:{size}g",
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
