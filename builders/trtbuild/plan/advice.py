"""What would make a plan fit: each change is tried by planning again, and only what then fits is said.

In the order in which operators should try them: fewer sequences, shorter ones, a smaller KV type, 8-bit
before 4-bit weights, fewer copies, then more or larger GPUs. Where no single change helps, several together.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.catalog.gpus import Gpu, all_gpus
from trtbuild.plan.changes import Attempt, Change, Trial
from trtbuild.plan.model import Finding, Plan
from trtbuild.plan.search import combinations
from trtbuild.spec import DeploymentSpec

_GIB = 1 << 30


def advise(
    spec: DeploymentSpec, plan: Plan, gpu: Gpu | None, trial: Trial, *, fixed_gpu: bool = False
) -> list[Finding]:
    """Findings for a plan that does not fit: what takes the room, then every single change that helps, else
    what helps together.

    Args:
        spec: what was asked for.
        plan: its plan, with ``fits`` False.
        gpu: the GPU; None for the target local.
        trial: how a change is tried.
        fixed_gpu: the GPU is that of a repository and cannot be chosen.
    """
    attempts = [
        Attempt(spec, index, llm, gpu, trial)
        for index, llm in enumerate(plan.llms[-len(spec.models) :] if spec.models else ())
    ]
    gpus = [] if fixed_gpu or gpu is None else sorted(all_gpus(), key=lambda card: card.memory_bytes)
    changes = list(_singles(attempts))
    if gpu is not None:
        changes += _smallest_gpu(spec, gpu, gpus, trial)
    nothing = "a smaller model"
    if not changes:
        changes = [change for attempt in attempts for change in attempt.formats(concurrency=1)][:1]
    if not changes and gpu is not None:
        changes, nothing = combinations(attempts, gpu, gpus, plan.target)
    remedy = "one of the changes listed" if changes else nothing
    return [_what_is_too_large(plan, remedy), *(change.finding() for change in changes)]


def _what_is_too_large(plan: Plan, remedy: str) -> Finding:
    sums = {"weights": 0, "KV pools": 0}
    for llm in plan.llms:
        sums["weights"] += llm.instances * (llm.weights_bytes + llm.engine_copy_bytes)
        sums["KV pools"] += llm.instances * llm.kv_bytes
    rest = sum(item.bytes for item in plan.ledger) - sum(sums.values())
    largest = max(sums, key=lambda name: sums[name])
    parts = ", ".join(f"{name} {size / _GIB:.2f}" for name, size in (*sums.items(), ("all else", rest)))
    return Finding(
        id="memory",
        severity="error",
        message=f"{plan.gpu.name} has {plan.gpu.memory_bytes / _GIB:.2f} GiB, "
        f"{-plan.free_bytes / _GIB:.2f} GiB too little; the largest part is the {largest} ({parts} GiB)",
        remedy=remedy,
    )


def _singles(attempts: list[Attempt]) -> Iterator[Change]:
    for attempt in attempts:
        for change in (attempt.concurrency(), attempt.lengths(), attempt.kv_dtype(), attempt.instances()):
            if change is not None:
                yield change
        yield from attempt.formats()
        tp = attempt.tp()
        if tp is not None:
            yield tp


def _smallest_gpu(spec: DeploymentSpec, gpu: Gpu, gpus: list[Gpu], trial: Trial) -> list[Change]:
    for larger in gpus:
        if larger.memory_bytes <= gpu.memory_bytes:
            continue
        tried = trial.accepted(spec, larger)
        if tried is not None:
            what = f"the smallest GPU that carries it is {larger.name} ({larger.memory_bytes / _GIB:.1f} GiB)"
            return [Change("memory.gpu", what, f"--gpu {larger.name.lower()}", tried)]
    return []
