"""checkpoint.*: a model folder against what was asked for. What makes it unreadable is raised on reading."""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.build.routes import route
from trtbuild.errors import TrtbuildError
from trtbuild.plan.model import Finding
from trtbuild.preflight.base import Subject


def check_route(subject: Subject) -> Iterator[Finding]:
    """There is a way from the folder to the target: format, act-order, version."""
    checkpoint, plan = subject.checkpoint, subject.context.plan
    if checkpoint is None:
        return
    try:
        route(checkpoint, quant=subject.llm.quant, target=plan.target, version=plan.trtllm_version)
    except TrtbuildError as error:
        yield subject.finding("checkpoint.route", "error", error.message, *error.remedies)


def check_group(subject: Subject) -> Iterator[Finding]:
    """The group size is the checkpoint's own; a default that differs is only said."""
    checkpoint = subject.checkpoint
    if checkpoint is None or checkpoint.group_size is None or subject.format.group_size is None:
        return
    if checkpoint.group_size not in subject.format.groups:
        groups = " and ".join(map(str, subject.format.groups))
        yield subject.finding(
            "checkpoint.group",
            "error",
            f"the checkpoint has groups of {checkpoint.group_size}; {subject.format.name} has kernels for "
            f"{groups}",
            "take a checkpoint with such groups, or --calibrate from the 16-bit weights",
        )
    elif checkpoint.group_size != subject.format.group_size:
        yield subject.finding(
            "checkpoint.group", "info", f"groups of {checkpoint.group_size}, taken from the checkpoint"
        )


def check_kv_scales(subject: Subject) -> Iterator[Finding]:
    """KV scales that are all the same number were never calibrated."""
    checkpoint = subject.checkpoint
    if checkpoint is None or checkpoint.constant_kv_scale is None:
        return
    yield subject.finding(
        "checkpoint.kv-scales",
        "warning" if subject.llm.kv_dtype in ("fp8", "int8") else "info",
        f"all {checkpoint.kv_scales} KV scales of the checkpoint are {checkpoint.constant_kv_scale:g}: no "
        "calibration "
        "gives that (modelopt raises FP8 scales to at least 1), so long answers in a narrow KV cache are "
        "unproven",
        "leave --kv-dtype at auto",
        "--calibrate from the 16-bit weights",
    )
