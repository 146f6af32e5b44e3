"""A device's rates for a model: the data sheet times the fitted constants of the catalogue."""

from __future__ import annotations

import re

from trtbuild.catalog.formats import Format
from trtbuild.catalog.gpus import Gpu
from trtbuild.catalog.latency import LatencyConstants, arithmetic, peak_ops_s
from trtbuild.errors import PlanError
from trtbuild.plan.latency.cost import Rates

# GB/s of 16 lanes in one direction, by generation.
_PCIE_GBS = {3: 16.0, 4: 32.0, 5: 64.0, 6: 128.0}
_GIGA = 1e9


def device_rates(*, gpu: Gpu, fmt: Format, tp: int, flow: str, constants: LatencyConstants) -> Rates:
    """Rates of one GPU of a group of ``tp`` for weights in ``fmt``, in an engine's ``flow``.

    Raises:
        PlanError: a GPU whose bandwidth or arithmetic rate is not known.
    """
    kind = arithmetic(fmt, gpu)
    if not gpu.mem_bw_gbs or not gpu.fp16_tflops:
        raise PlanError(
            f"{gpu.name}: its bandwidth or operations a second are not known: no latency can be predicted",
            "--gpu NAME of the catalogue, or --from-run RUN measured on this GPU",
        )
    family, engine = constants.family(gpu), constants.flows[flow]
    memory = gpu.mem_bw_gbs * _GIGA
    linear = family.linear.get(kind, min(family.linear.values()))
    sixteen_bit = peak_ops_s(gpu, "fp16")
    over_nvlink = bool(gpu.nvlink_gbs) and tp <= constants.without_nvlink.get(gpu.name, tp)
    link = constants.links["nvlink" if over_nvlink else "pcie"]
    one_way = (gpu.nvlink_gbs or 0.0) / 2 if over_nvlink else _pcie_gbs(gpu)
    return Rates(
        linear_ops_s=peak_ops_s(gpu, kind) * linear,
        expert_ops_s=peak_ops_s(gpu, kind) * linear * constants.experts,
        head_ops_s=sixteen_bit * constants.head,
        attention_ops_s=sixteen_bit * constants.attention,
        memory_bytes_s=memory * family.memory,
        kv_bytes_s=memory * family.memory * constants.kv,
        roundness=constants.roundness,
        elementwise_bytes_per_width=constants.elementwise_bytes_per_width,
        logits_bytes_per_entry=constants.logits_bytes_per_entry,
        reduce_s=link.reduce_s,
        reduce_bytes_s=one_way * _GIGA * link.efficiency,
        step_s=engine.step_s,
        layer_s=constants.layer_s,
        sequence_s=engine.sequence_s,
        request_s=engine.request_s,
    )


def _pcie_gbs(gpu: Gpu) -> float:
    found = re.match(r"(\d)\.0 x(\d+)", gpu.pcie or "")
    if found is None:
        return _PCIE_GBS[4]
    return _PCIE_GBS[int(found[1])] * int(found[2]) / 16
