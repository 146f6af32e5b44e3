"""tp.mig, tp.heads, tp.group-in, tp.group-out, tp.group: what the ranks of TP need of the GPUs, and every
quantised layer's width against TP × group, in and out.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.catalog.versions import version_key
from trtbuild.plan.architecture import Linear
from trtbuild.plan.groups import TPS, heads_fit, misfit_in, misfit_out, quantised_linears, ways_out
from trtbuild.plan.model import Finding
from trtbuild.preflight.base import Severity, Subject


def check_mig(subject: Subject) -> Iterator[Finding]:
    """The ranks of one instance exchange data between GPUs, which MIG slices cannot (NVIDIA's MIG User Guide,
    Application Considerations).
    """
    gpu, tp = subject.context.gpu, subject.llm.tp
    if gpu is not None and gpu.is_slice and tp > 1:
        yield subject.finding(
            "tp.mig",
            "error",
            f"TP {tp} over MIG slices ({gpu.name}): between slices MIG has neither P2P nor CUDA IPC, by "
            "which ranks exchange their parts",
            "--tp 1 on a larger slice",
            "whole GPUs",
        )


def check_heads(subject: Subject) -> Iterator[Finding]:
    """Attention heads are never cut, and KV heads are either divided or copied evenly."""
    arch, tp = subject.architecture, subject.llm.tp
    if heads_fit(arch, tp):
        return
    others = ", ".join(str(other) for other in TPS if heads_fit(arch, other))
    yield subject.finding(
        "tp.heads",
        "error",
        f"{arch.heads} attention heads and {arch.kv_heads} KV heads cannot be divided over TP {tp}: a head "
        "is "
        "never cut, and KV heads are divided or copied evenly",
        f"TP {others} fits",
    )


def check_groups(subject: Subject) -> Iterator[Finding]:
    """Inputs of a rank are whole groups, its packed rows and columns whole tiles of the kernels."""
    tp, group = subject.llm.tp, subject.group_size
    linears = quantised_linears(subject.architecture, subject.format)
    inputs = [(linear, why) for linear in linears if (why := misfit_in(linear, tp, group))]
    outputs = [(linear, why) for linear in linears if (why := misfit_out(linear, tp, subject.format))]
    if inputs:
        yield _finding(subject, "tp.group-in", inputs)
    if outputs:
        yield _finding(subject, "tp.group-out", outputs)
    default = subject.format.group_size
    if not inputs and not outputs and subject.checkpoint is None and group != default:
        why = next(filter(None, (misfit_in(linear, tp, default) for linear in linears)), "")
        yield subject.finding("tp.group", "info", f"groups of {group} instead of {default}: {why}")


def _finding(subject: Subject, rule: str, misfits: list[tuple[Linear, str]]) -> Finding:
    llm, fmt, arch = subject.llm, subject.format, subject.architecture
    first, why = misfits[0]
    also = ", ".join(linear.name for linear, _ in misfits[1:])
    remedies = ways_out(arch, fmt, first, tp=llm.tp, group_size=subject.group_size, fixed=subject.fixed_group)
    severity: Severity = "error"
    if fmt.algo in ("W8A16", "W4A16") and _pads(subject):
        severity = "warning"
        why += "; TensorRT-LLM pads this format since 0.13, at a cost in memory and speed"
    also = f"; so do {also}" if also else ""
    return subject.finding(rule, severity, f"{why} ({llm.quant}, TP {llm.tp}){also}", *remedies)


def _pads(subject: Subject) -> bool:
    """Weight-only formats without groups are padded by the loader since 0.13 (its release notes)."""
    version = subject.context.plan.trtllm_version
    return version is not None and version_key(version) >= version_key("0.13.0")
