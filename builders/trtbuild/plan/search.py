"""Several changes together, where none alone makes a plan fit: format, GPUs of one instance, kind of GPU.

Bounded: for each GPU and each narrower format one plan on the most GPUs that the model can be divided over
tells whether any is enough; only what is, is looked at closer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtbuild.catalog.formats import Format, find_format
from trtbuild.catalog.gpus import Gpu
from trtbuild.plan.changes import TPS, Attempt, Change
from trtbuild.plan.model import Plan
from trtbuild.spec import DeploymentSpec, Target

_GIB = 1 << 30


def combinations(
    attempts: Sequence[Attempt], gpu: Gpu, gpus: Sequence[Gpu], target: Target
) -> tuple[list[Change], str]:
    """What fits, on the planned GPU before the others and wide formats before narrow ones.

    Args:
        attempts: one for each model of the spec.
        gpu: the planned one.
        gpus: others that may be chosen, the smallest first.

    Returns:
        The changes, and where there are none, how far away the nearest is.
    """
    nearest: tuple[int, str] | None = None
    for attempt in attempts:
        others = [other for other in gpus if other.name != gpu.name]
        for cards in ([gpu], others):
            found: dict[int, Change] = {}  # by the width of the weights
            for card, fmt in _pairs(attempt, cards):
                widest = None if fmt.bits in found else _on_most_gpus(attempt, card, fmt.name)
                if widest is None:
                    continue
                tp, plan = widest
                if not plan.fits:
                    there = f"{tp} × {card.name} in {plan.llms[-1].quant}"
                    nearest = min(filter(None, (nearest, (-plan.free_bytes, there))))
                elif (change := _smallest_tp(attempt, card, fmt.name, tp)) is not None:
                    found[fmt.bits] = change
            if found:
                return list(found.values()), ""
    where = "any GPU of the catalogue" if gpus else gpu.name
    if nearest is None:
        return [], f"the target {target.value} runs it on {where} in no format: another target or model"
    return [], (
        f"it fits on {where} with --tp 8 or less in no format, one sequence at a time; the nearest is "
        f"{nearest[1]}, {nearest[0] / _GIB:.1f} GiB too little on each: a smaller model"
    )


def _pairs(attempt: Attempt, gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, Format]]:
    formats = [find_format(attempt.llm.quant), *attempt.smaller_formats()]
    for fmt in formats:
        for gpu in gpus:
            yield gpu, fmt


def _changed(attempt: Attempt, fmt: str, tp: int) -> DeploymentSpec:
    asked = attempt.spec.models[attempt.index]
    update: dict[str, object] = {"tp": tp}
    if fmt != attempt.llm.quant:
        update["quant"] = fmt
    if asked.concurrency is not None:
        update["concurrency"] = 1
    return attempt.with_(**update)


def _on_most_gpus(attempt: Attempt, gpu: Gpu, fmt: str) -> tuple[int, Plan] | None:
    """The plan with the most room that the rules allow: on the most GPUs that the model divides over."""
    for tp in reversed(TPS):
        spec = _changed(attempt, fmt, tp)
        plan = attempt.trial.planned(spec, gpu)
        if plan is not None and not attempt.trial.refused(plan, spec):
            return tp, plan
    return None


def _smallest_tp(attempt: Attempt, gpu: Gpu, fmt: str, most: int) -> Change | None:
    for tp in TPS:
        plan = attempt.trial.accepted(_changed(attempt, fmt, tp), gpu) if tp <= most else None
        if plan is not None:
            return _told(attempt, gpu, fmt, tp, plan)
    return None


def _told(attempt: Attempt, gpu: Gpu, fmt: str, tp: int, plan: Plan) -> Change:
    flags, words = [], []
    if fmt != attempt.llm.quant:
        flags.append(f"--quant {fmt}")
        words.append(f"weights in {fmt}")
    if attempt.spec.models[attempt.index].concurrency is not None:
        flags.append("--concurrency 1")
        words.append("1 sequence at a time")
    flags.append(f"--tp {tp}")
    words.append(f"split over {tp} {gpu.name}" if tp > 1 else f"on one {gpu.name}")
    if attempt.gpu is None or gpu.name != attempt.gpu.name:
        flags.append(f"--gpu {gpu.name.lower()}")
    return attempt.change("memory.together", ", ".join(words), " ".join(flags), plan)
