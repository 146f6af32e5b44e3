"""checkpoint.*: a model folder against what was asked for. What makes it unreadable is raised on reading."""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.build.jobs import JobOptions, plan_job
from trtbuild.errors import TrtbuildError
from trtbuild.plan.model import Finding
from trtbuild.plan.quant_configs import OWN_QUANTISATION
from trtbuild.preflight.base import Subject
from trtbuild.spec import Target


def check_route(subject: Subject) -> Iterator[Finding]:
    """There is a way from the weights to the target, be they a folder or on the hub: what the build decides,
    decided now.
    """
    plan, spec = subject.context.plan, subject.spec
    if spec is None:
        return  # its build was decided when it was added
    options = JobOptions.of(spec)
    if plan.target is Target.LOCAL:
        if options.calibrate:
            yield subject.finding(
                "checkpoint.route",
                "error",
                "the target local reads files as they are and calibrates nothing",
                "leave out --calibrate and --calibration, or --target engine",
            )
        return
    try:
        plan_job(
            subject.llm,
            target=plan.target,
            version=plan.trtllm_version or "0",
            options=options,
            checkpoint=subject.checkpoint,
        )
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
            "take a checkpoint with such groups",
            OWN_QUANTISATION,
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
        OWN_QUANTISATION,
    )
