"""host.*: memory and disk of the machine that builds, and its driver against the container."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from trtbuild.build.jobs import JobOptions, plan_job
from trtbuild.catalog.versions import Container, containers
from trtbuild.errors import TrtbuildError
from trtbuild.plan.model import Finding
from trtbuild.preflight.base import Subject, gib
from trtbuild.spec import Target

_GIB = 1 << 30
# Conversion and compilation hold the weights twice: as read and as packed. Triton's own guide asks for 48 GB
# for an 8B model in 16 bit (16 GB); twice that is 32 GB, and the rest is TensorRT, CUDA and Python.
_WEIGHT_COPIES = 2
_BUILD_MARGIN_BYTES = 8 * _GIB
# Logs, timing cache, calibration text and a file system that is not full to the brim.
_DISK_MARGIN_BYTES = 2 * _GIB
# CUDA major version → oldest driver branch (NVIDIA, CUDA Compatibility, table of minor-version
# compatibility).
_LEAST_DRIVER = {12: 525, 13: 580}


def check_ram(subject: Subject) -> Iterator[Finding]:
    """Host RAM for the largest step; a build that is killed says nothing but "Killed"."""
    host = subject.context.host
    if host is None or host.ram_bytes is None:
        return
    source = _source_bytes(subject)
    need = _WEIGHT_COPIES * source + _BUILD_MARGIN_BYTES
    if host.ram_bytes < need:
        yield subject.finding(
            "host.ram",
            "error",
            f"converting {gib(source)} of weights takes about {gib(need)} of host RAM "
            f"({_WEIGHT_COPIES} × weights + {gib(_BUILD_MARGIN_BYTES)}), and this machine has "
            f"{gib(host.ram_bytes)}",
            "run the repository's build_engines.sh on a machine with more memory",
            "take a published checkpoint in the wanted format, which is smaller than the 16-bit one",
        )


def check_disk(subject: Subject) -> Iterator[Finding]:
    """Disk for weights, checkpoint and engine at the same time."""
    host = subject.context.host
    if host is None or host.disk_free_bytes is None:
        return
    source, product = _source_bytes(subject), subject.llm.weights_bytes * subject.llm.tp
    copies = 2 if subject.context.plan.target is Target.ENGINE else 1  # checkpoint and engine
    need = source + copies * product + _DISK_MARGIN_BYTES
    if host.disk_free_bytes + host.held_bytes(subject.llm.name) < need:
        yield subject.finding(
            "host.disk",
            "error",
            f"weights {gib(source)} + checkpoint{' and engine' if copies == 2 else ''} "
            f"{gib(copies * product)} + "
            f"{gib(_DISK_MARGIN_BYTES)} = {gib(need)}, and {gib(host.disk_free_bytes)} are free",
            f"free {gib(need - host.held_bytes(subject.llm.name) - host.disk_free_bytes)}",
            "build on another file system",
        )


def check_driver(subject: Subject) -> Iterator[Finding]:
    """The container's CUDA needs a driver of its major version, and is at home with one of its own branch."""
    host, container = subject.context.host, subject.context.container
    if host is None or host.driver is None or container is None:
        return
    problem = driver_problem(host.driver, container)
    if problem is not None:
        severity, message, remedies = problem
        yield subject.finding("host.driver", severity, message, *remedies)


def driver_problem(
    driver: str, container: Container
) -> tuple[Literal["warning", "error"], str, tuple[str, ...]] | None:
    """What is wrong with a driver for a container: severity, message, ways out; None where nothing is."""
    found, wanted = _branch(driver), _branch(container.driver)
    if found >= wanted:
        return None
    least = _LEAST_DRIVER.get(_branch(container.cuda), wanted)
    fits = next((other for other in containers() if _branch(other.driver) <= found), None)
    compatible = found >= least
    why = (
        f"; CUDA's minor-version compatibility carries it from branch {least} on, without compiling PTX"
        if compatible
        else f"; CUDA {container.cuda} needs at least branch {least}"
    )
    message = (
        f"driver {driver} is older than the one of container {container.release} ({container.driver}, "
        f"CUDA {container.cuda}){why}"
    )
    older = f"container {fits.release} (TensorRT-LLM {fits.trtllm}) is made for it" if fits else None
    remedies = (*([older] if older else []), f"install a driver of branch {wanted} or newer")
    return "warning" if compatible else "error", message, remedies


def _branch(version: str) -> int:
    head = version.split(".", 1)[0]
    return int(head) if head.isdigit() else 0


def _source_bytes(subject: Subject) -> int:
    """Weights as fetched: the folder's own size where it is known, those of the plan for a checkpoint that is
    published in the format, else 2 bytes a parameter.
    """
    if subject.checkpoint is not None:
        return subject.checkpoint.size_bytes
    plan, llm = subject.context.plan, subject.llm
    options = JobOptions.of(subject.spec) if subject.spec is not None else None
    with suppress(TrtbuildError):
        recipe = plan_job(llm, target=plan.target, version=plan.trtllm_version or "0", options=options).recipe
        if recipe.source_quant is not None or (recipe.method == "direct" and subject.format.bits < 16):
            return llm.weights_bytes * llm.tp
    return 2 * subject.architecture.params
