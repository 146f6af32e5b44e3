"""A plan in words and tables: what runs where, what takes the room, how much it carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtbuild.cli.console import note, print_table, size
from trtbuild.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from trtbuild.plan.model import Finding, LedgerItem, Plan


def print_plan(plan: Plan, notes: Sequence[str] = (), *, beside: Collection[str] = ()) -> None:
    """Prints the plan: target, ledger, limits, and what was assumed or noticed on the way.

    Args:
        beside: models that were there before; of them only a sum is printed, unless the plan does not fit.
    """
    beside = beside if plan.fits else ()
    device = plan.gpu.name + (f" (SM {plan.gpu.sm})" if plan.gpu.sm else "")
    versions = (
        f", container {plan.container} with TensorRT-LLM {plan.trtllm_version}" if plan.container else ""
    )
    note(f"target {plan.target.value}: {plan.target_reason}")
    note(f"device {device}, {size(plan.gpu.memory_bytes)}{versions}")
    for text in notes:
        note(text)
    print_ledger(plan, beside=beside)
    print_limits(plan, beside=beside)
    for finding in plan.findings:
        if finding.severity != "error" and finding not in _changes(plan):
            note(
                f"{finding.severity}: {finding.message}"
                + (f"\n  → {finding.remedy}" if finding.remedy else "")
            )


def print_ledger(plan: Plan, *, beside: Collection[str] = ()) -> None:
    """The memory account of the device, then what lies beside it; of the models ``beside`` their sum."""
    rows = _rows(plan.ledger, beside)
    rows.append(("free", size(plan.free_bytes), f"of {size(plan.gpu.memory_bytes)}"))
    print_table((f"on {plan.gpu.name}", ">size", "why"), rows)
    if plan.host_ledger:
        print_table(("in host RAM", ">size", "why"), _rows(plan.host_ledger, beside))


def _rows(items: Sequence[LedgerItem], beside: Collection[str]) -> list[tuple[str, str, str]]:
    own = [item for item in items if item.model not in beside]
    others = sum(item.bytes for item in items if item.model in beside)
    rows = [(item.item, size(item.bytes), item.why) for item in own]
    if others:
        what = f"{len(beside)} models beside them" if len(beside) > 1 else "1 model beside them"
        rows.append((what, size(others), "trtbuild list shows each"))
    return rows


def print_limits(plan: Plan, *, beside: Collection[str] = ()) -> None:
    """What each model but those ``beside`` carries: requests at once, tokens in the cache, longest prompt and
    answer."""
    llms = [llm for llm in plan.llms if llm.name not in beside]
    if llms:
        rows = [
            (
                llm.name,
                f"{llm.quant}, KV {llm.kv_dtype}",
                llm.instances,
                llm.max_batch_size,
                f"{llm.max_input_tokens:,} + {llm.max_output_tokens:,}",
                f"{llm.kv_tokens:,}",
                f"{llm.kv_bytes_per_token:,}",
                llm.max_concurrency,
            )
            for llm in llms
        ]
        columns = (
            "model",
            "weights",
            ">copies",
            ">at once",
            ">in + out",
            ">KV tokens",
            ">B/token",
            ">longest in KV",
        )
        print_table(columns, rows)
    for vision in (vision for vision in plan.visions if vision.name not in beside):
        networks = ", ".join(f"{n.model} ×{n.instances} batch {n.max_batch_size}" for n in vision.networks)
        stages = ", ".join(f"{stage.instances} × {stage.role}" for stage in vision.stages)
        note(f"{vision.name}: {vision.task.value}; {stages}; {networks}")


def refuse_unless_it_fits(plan: Plan) -> None:
    """Raises when a rule forbids the plan or it is larger than the device.

    Raises:
        PlanError: the errors found, with the changes that would make it work.
    """
    if plan.errors or not plan.fits:
        found = [f"{finding.message} [{finding.id}]" for finding in plan.errors]
        if not found:
            found = ["the plan does not fit the device"]
        message = (
            found[0]
            if len(found) == 1
            else f"{len(found)} things forbid it:" + "".join(f"\n  - {text}" for text in found)
        )
        changes = [f"{change.remedy}   ({change.message})" for change in _changes(plan)]
        remedies = [finding.remedy for finding in plan.errors if finding.remedy]
        raise PlanError(message, *dict.fromkeys(changes or remedies))


def _changes(plan: Plan) -> list[Finding]:
    """What would make a plan fit that does not: ways out of its error, not remarks beside it."""
    return [f for f in plan.findings if not plan.fits and f.severity == "info" and f.id.startswith("memory.")]
