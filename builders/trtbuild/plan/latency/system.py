"""A plan's language model as a system to simulate."""

from __future__ import annotations

from trtbuild.catalog.formats import find_format
from trtbuild.catalog.gpus import Gpu
from trtbuild.catalog.latency import LatencyConstants, arithmetic
from trtbuild.plan.architecture import Architecture
from trtbuild.plan.latency.cost import StepCost
from trtbuild.plan.latency.forecast import System
from trtbuild.plan.latency.rates import device_rates
from trtbuild.plan.latency.replica import Limits, Policy
from trtbuild.plan.latency.work import model_work
from trtbuild.plan.model import LlmPlan
from trtbuild.spec import Target

# Both GPU targets are called through Triton; which flow runs the steps is the target's.
_FLOWS = {Target.ENGINE: "triton", Target.LLMAPI: "pytorch"}


def limits_of(llm: LlmPlan, policy: Policy = Policy.NO_EVICT) -> Limits:
    """The plan's limits."""
    return Limits(
        max_batch_size=llm.max_batch_size,
        max_num_tokens=max(llm.max_num_tokens, llm.max_batch_size + llm.tokens_per_block),
        kv_tokens=llm.kv_tokens,
        tokens_per_block=llm.tokens_per_block,
        chunked_context=llm.chunked_context,
        reuse=llm.kv_reuse,
        policy=policy,
    )


def gpu_system(
    llm: LlmPlan,
    *,
    architecture: Architecture,
    gpu: Gpu,
    target: Target,
    constants: LatencyConstants,
    policy: Policy = Policy.NO_EVICT,
) -> System:
    """The model on its GPU. Several instances on one GPU share its time: each takes as many times as long.

    Raises:
        PlanError: a GPU whose rates are not known.
    """
    fmt = find_format(llm.quant)
    work = model_work(
        architecture=architecture, fmt=fmt, kv_bits=8 if llm.kv_dtype in ("int8", "fp8") else 16, tp=llm.tp
    )
    rates = device_rates(gpu=gpu, fmt=fmt, tp=llm.tp, flow=_FLOWS[target], constants=constants)
    return System(
        cost=StepCost(work, rates).scaled(float(llm.instances)),
        limits=limits_of(llm, policy),
        replicas=llm.instances,
        gpus_per_replica=llm.tp / llm.instances,
        spreads=constants.spreads,
    )


def evidence(*, llm: LlmPlan, gpu: Gpu, constants: LatencyConstants) -> str:
    """On how much the constants of a GPU and precision rest, in words."""
    kind = arithmetic(find_format(llm.quant), gpu)
    family = constants.family(gpu)
    name = next(name for name, other in constants.families.items() if other is family)
    count = family.records.get(kind, 0)
    if gpu.sm not in family.sms:
        return f"no published figure is of a chip like {gpu.name} (SM {gpu.sm}): those of {name} are taken"
    if not count:
        return (
            f"unproved: no published figure of {kind} arithmetic on {name} was fitted, its share is a guess"
        )
    few = ", few" if count < 10 else ""
    return f"{kind} arithmetic on {name}: fitted on {count} published figures{few}"
