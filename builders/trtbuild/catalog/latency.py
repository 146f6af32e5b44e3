"""Constants of the latency model (``data/latency.yaml``): shares of a GPU family's rates, and overheads."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from pydantic import BaseModel, ConfigDict

from trtbuild.catalog.datafile import read_data
from trtbuild.catalog.formats import Format
from trtbuild.catalog.gpus import Gpu

# In which type a matrix product multiplies: what the rate of the data sheet is looked up by.
Arithmetic = Literal["fp16", "fp8", "int8", "fp4", "w4a16", "w4a8", "w8a16"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Family(_Frozen):
    """One generation of chips: shares of the data sheet's rates that the model's terms reach."""

    sms: tuple[str, ...]
    memory: float  # weights and element-wise work
    linear: dict[Arithmetic, float]
    records: dict[str, int] = {}  # how many fitted records each share of `linear` rests on; 0: a guess


class Link(_Frozen):
    """How GPUs of one tensor-parallel group talk."""

    reduce_s: float  # latency of one all-reduce
    efficiency: float  # of the data sheet's rate in one direction


class Flow(_Frozen):
    """What an engine's flow adds to the arithmetic."""

    step_s: float
    sequence_s: float  # for each sequence of a step
    request_s: float  # outside of any step, before a first token


class Spread(_Frozen):
    """Quantiles of published over predicted values in the judged half: the factors of an error bar."""

    p10: float
    p50: float
    p90: float
    records: int


class LatencyConstants(_Frozen):
    """All of ``data/latency.yaml``; what each constant multiplies is told in `trtbuild.plan.latency.cost`."""

    roundness: float
    elementwise_bytes_per_width: float
    logits_bytes_per_entry: float
    kv: float  # rate at which a cache is read, over that of weights
    attention: float  # prompts' attention, share of the 16-bit rate
    head: float  # lm_head, share of the 16-bit rate
    experts: float  # rate of experts' products, over that of dense ones
    layer_s: float  # launching a layer's kernels
    families: dict[str, Family]
    links: dict[Literal["nvlink", "pcie"], Link]
    without_nvlink: dict[str, int]  # GPU → the most of them that NVLink joins
    flows: dict[str, Flow]
    spreads: dict[str, Spread]

    def family(self, gpu: Gpu) -> Family:
        """The family of a GPU; of one that is not listed, the nearest older one."""
        families = list(self.families.values())
        for family in families:
            if gpu.sm in family.sms:
                return family
        older = [family for family in families if float(family.sms[0]) <= gpu.capability]
        return older[-1] if older else families[0]


@lru_cache(maxsize=1)
def latency_constants() -> LatencyConstants:
    """The fitted constants; ``scripts/fit-latency`` makes them."""
    return LatencyConstants.model_validate(read_data("latency.yaml"))


def arithmetic(fmt: Format, gpu: Gpu) -> Arithmetic:
    """In which type the linear layers of a format are multiplied on a GPU."""
    if fmt.name in ("fp8", "fp8-block"):
        return "fp8" if gpu.fp8_tflops else "w8a16"
    if fmt.name == "nvfp4":
        return "fp4"
    if fmt.name == "mxfp4":
        # 8-bit activations where the chip multiplies them with 4-bit weights, else 16-bit ones
        return "fp8" if gpu.fp4_tflops else "w4a16"
    if fmt.name == "int8-sq":
        return "int8"
    if fmt.name == "w4a8-awq":
        return "w4a8"
    return {4: "w4a16", 6: "w4a16", 8: "w8a16"}.get(fmt.bits, "fp16")  # type: ignore[return-value]


def peak_ops_s(gpu: Gpu, kind: Arithmetic) -> float:
    """The data sheet's dense rate for an arithmetic, operations a second."""
    rate = {
        "fp8": gpu.fp8_tflops,
        "w4a8": gpu.fp8_tflops,
        "int8": gpu.int8_tops,
        "fp4": gpu.fp4_tflops,
    }.get(kind, gpu.fp16_tflops)
    return (rate or gpu.fp16_tflops or 0.0) * 1e12
