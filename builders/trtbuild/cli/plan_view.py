"""A plan in words and tables: what runs where, what takes the room, how much it carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtbuild.cli.console import note, print_table, size
from trtbuild.errors import PlanError

if TYPE_CHECKING:
    from trtbuild.plan.model import LedgerItem, Plan

_PLACES = {"gpu": "GPU", "host": "host RAM", "shm": "/dev/shm"}


def print_plan(plan: Plan) -> None:
    """Prints the whole plan: target, ledger, limits, and what the rules noticed."""
    from trtbuild.spec import Target

    device = plan.gpu.name + (f" (SM {plan.gpu.sm})" if plan.gpu.sm else "")
    versions = (
        f", container {plan.container} with TensorRT-LLM {plan.trtllm_version}" if plan.container else ""
    )
    note(f"target {plan.target.value}: {plan.target_reason}")
    note(f"device {device}, {size(plan.gpu.memory_bytes)}{versions}")
    device_place = "host" if plan.target is Target.LOCAL else "gpu"
    print_ledger(plan, device_place)
    print_limits(plan)
    for finding in plan.findings:
        if finding.severity != "error":
            note(
                f"{finding.severity}: {finding.message}"
                + (f"\n  → {finding.remedy}" if finding.remedy else "")
            )


def print_ledger(plan: Plan, device_place: str) -> None:
    """The memory account; items beside the planned device stand apart below the sum."""
    free = ("", "free", size(plan.free_bytes), f"of {size(plan.gpu.memory_bytes)} on {plan.gpu.name}")
    on_device = [_row(item) for item in plan.ledger if item.where == device_place]
    beside = [_row(item, _PLACES[item.where]) for item in plan.ledger if item.where != device_place]
    print_table(("model", "item", ">size", "why"), [*on_device, free, *beside])


def _row(item: LedgerItem, place: str | None = None) -> tuple[str, str, str, str]:
    return (item.model or "", f"{item.item} ({place})" if place else item.item, size(item.bytes), item.why)


def print_limits(plan: Plan) -> None:
    """What each model carries: requests at once, tokens in the cache, longest prompt and answer."""
    if plan.llms:
        rows = [
            (
                llm.name, llm.quant, llm.kv_dtype, llm.instances, llm.max_batch_size, llm.max_concurrency,
                f"{llm.kv_tokens:,}", f"{llm.kv_bytes_per_token:,}", f"{llm.max_input_tokens:,}",
                f"{llm.max_output_tokens:,}",
            )
            for llm in plan.llms
        ]  # fmt: skip
        columns = (
            "model", "weights", "KV", ">copies", ">batch", ">longest at once", ">KV tokens", ">bytes/token",
            ">prompt", ">answer",
        )  # fmt: skip
        print_table(columns, rows)
    for vision in plan.visions:
        networks = ", ".join(f"{n.model} ×{n.instances} batch {n.max_batch_size}" for n in vision.networks)
        note(f"{vision.name}: {vision.instances} fronts; {networks}")


def refuse_unless_it_fits(plan: Plan) -> None:
    """Raises when a rule forbids the plan or it is larger than the device.

    Raises:
        PlanError: the errors found, with the changes that would make it work.
    """
    errors = [finding for finding in plan.findings if finding.severity == "error"]
    if errors or not plan.fits:
        message = "; ".join(finding.message for finding in errors) or "the plan does not fit the device"
        raise PlanError(message, *(finding.remedy for finding in errors if finding.remedy))
