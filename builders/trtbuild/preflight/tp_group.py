"""tp.heads, tp.group-in, tp.group-out: every linear layer's width against TP × group.

modelopt does not look at shapes, so a checkpoint that cannot be compiled is only noticed after hours of
calibration (TensorRT-LLM issues 1833, 2445, 776, 648). Checked are all quantised layers, fused QKV included,
in and out.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.catalog.versions import version_key
from trtbuild.plan.architecture import Architecture, Linear
from trtbuild.plan.model import Finding
from trtbuild.preflight.base import TPS, Severity, Subject
from trtbuild.spec import Target

# Packed rows and columns on a rank are multiples of 32 bytes; the assertion is quoted in issue 2445.
_PACKED_BYTES = 32
_QUANTISED_PARTS = {
    "blocks": ("attention", "mlp", "expert", "shared_expert"),
    "experts": ("expert",),
}


def check_heads(subject: Subject) -> Iterator[Finding]:
    """Attention heads are never cut, and KV heads are either divided or copied evenly."""
    arch, tp = subject.architecture, subject.llm.tp
    if _heads_fit(arch, tp):
        return
    fits = [str(other) for other in TPS if _heads_fit(arch, other)]
    yield subject.finding(
        "tp.heads",
        "error",
        f"{arch.heads} attention heads and {arch.kv_heads} KV heads cannot be divided over TP {tp}: a head "
        "is "
        f"never cut, and KV heads are divided or copied evenly",
        f"TP {', '.join(fits)} fits",
    )


def check_groups(subject: Subject) -> Iterator[Finding]:
    """Inputs of a rank are whole groups, its packed rows and columns whole kernels' tiles."""
    if subject.context.plan.target is Target.LOCAL or subject.format.layers not in _QUANTISED_PARTS:
        return
    for linear in quantised_linears(subject):
        if why := _misfit_in(linear, subject.llm.tp, subject.group_size):
            yield _finding(subject, "tp.group-in", linear, why)
        elif why := _misfit_out(subject, linear, subject.llm.tp):
            yield _finding(subject, "tp.group-out", linear, why)


def quantised_linears(subject: Subject) -> tuple[Linear, ...]:
    """The layers that the model's format stores narrow."""
    parts = _QUANTISED_PARTS.get(subject.format.layers, ())
    return tuple(linear for linear in subject.architecture.linears() if linear.part in parts)


def fitting_tps(subject: Subject, group_size: int | None) -> tuple[int, ...]:
    """The TPs at which heads and every quantised layer fit a group size."""
    return tuple(
        tp
        for tp in TPS
        if _heads_fit(subject.architecture, tp)
        and not any(
            _misfit_in(linear, tp, group_size) or _misfit_out(subject, linear, tp)
            for linear in quantised_linears(subject)
        )
    )


def _heads_fit(arch: Architecture, tp: int) -> bool:
    kv_fits = arch.kv_heads % tp == 0 or tp % arch.kv_heads == 0
    return arch.heads % tp == 0 and (kv_fits or arch.mla is not None)


def _misfit_in(linear: Linear, tp: int, group_size: int | None) -> str:
    if group_size is None or linear.in_features % ((tp if linear.split == "in" else 1) * group_size) == 0:
        return ""
    width = linear.in_features / (tp if linear.split == "in" else 1)
    on_rank = f", {width:g} on each of TP {tp}" if linear.split == "in" and tp > 1 else ""
    return (
        f"{linear.name} reads {linear.in_features} inputs{on_rank} = {width / group_size:g} groups of "
        f"{group_size}; a rank needs whole groups"
    )


def _misfit_out(subject: Subject, linear: Linear, tp: int) -> str:
    fmt = subject.format
    if fmt.block is not None:
        multiple, unit = fmt.block, f"blocks of {fmt.block}"
    elif fmt.algo in ("FP8", "NVFP4", "W8A8_SQ_PER_CHANNEL"):
        return ""  # no packing of weights into mixed-GEMM tiles
    else:
        multiple = _PACKED_BYTES * 8 // fmt.bits
        unit = f"{_PACKED_BYTES}-byte tiles of {multiple} {fmt.bits}-bit weights"
    width_in, width_out = linear.on_rank(tp)
    for side, width, total in (
        ("outputs", width_out, linear.out_features),
        ("inputs", width_in, linear.in_features),
    ):
        if width % multiple:
            return (
                f"{linear.name} has {total} {side}, {width} on each of TP {tp} = {width / multiple:g} "
                f"{unit}; "
                "the kernels need whole ones"
            )
    return ""


def _finding(subject: Subject, rule: str, linear: Linear, why: str) -> Finding:
    llm, fmt = subject.llm, subject.format
    remedies = []
    for group in fmt.groups or (None,):
        tps = fitting_tps(subject, group)
        if tps and (group == subject.group_size or not _checkpoint_fixes_group(subject)):
            with_group = f" with groups of {group}" if group else ""
            remedies.append(f"TP {', '.join(map(str, tps))} fits{with_group}")
    if linear.split == "in" and linear.part == "mlp" and subject.group_size:
        step = llm.tp * subject.group_size
        padded = -(-linear.in_features // step) * step
        remedies.append(f"a checkpoint padded to intermediate_size {padded} fits TP {llm.tp}")
    remedies.append("fp8 has no groups (SM 8.9 and newer), 16 bit fits every TP that the heads allow")
    severity: Severity = "error"
    if fmt.algo in ("W8A16", "W4A16") and _pads(subject):
        severity = "warning"
        why += "; TensorRT-LLM pads this format since 0.13, at a cost in memory and speed"
    return subject.finding(rule, severity, f"{why} ({llm.quant}, TP {llm.tp})", *remedies)


def _checkpoint_fixes_group(subject: Subject) -> bool:
    return subject.checkpoint is not None and subject.checkpoint.group_size is not None


def _pads(subject: Subject) -> bool:
    """Weight-only formats without groups are padded by the loader since 0.13 (its release notes)."""
    version = subject.context.plan.trtllm_version
    return version is not None and version_key(version) >= version_key("0.13.0")
