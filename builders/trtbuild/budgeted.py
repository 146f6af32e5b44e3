"""Limits from a latency budget: the batch and the step with which a model carries most within it."""

from __future__ import annotations

from dataclasses import replace

from trtbuild.catalog.latency import latency_constants
from trtbuild.defaults import LENGTH_VARIATION
from trtbuild.errors import PlanError
from trtbuild.plan.device import planned_gpu
from trtbuild.plan.latency.budget import LARGEST_STEP_TOKENS, Budget, Choice, best_limits, most_rate
from trtbuild.plan.latency.forecast import System, forecast
from trtbuild.plan.latency.load import Lengths
from trtbuild.plan.latency.mix import Level, Mix
from trtbuild.plan.latency.system import gpu_system
from trtbuild.plan.model import LlmPlan, Plan
from trtbuild.plan.sources import name_of, resolve
from trtbuild.spec import DeploymentSpec, LlmSpec

_REQUESTS = 600  # simulated at each level: P95 of some hundred, in a second or two
_PERCENTILE = 95


def has_open_budget(llm: LlmSpec) -> bool:
    """Whether a budget is to set limits that the spec leaves open."""
    return llm.ttft_ms is not None and (llm.concurrency is None or llm.max_num_tokens is None)


def with_limits(spec: DeploymentSpec, plan: Plan) -> tuple[DeploymentSpec, list[str]]:
    """The spec with the limits that its budgets ask for, and why in sentences. What is given stays.

    Args:
        plan: of the spec without budgets: the memory's limits, which stay the upper ones.

    Raises:
        PlanError: a device of which no figures exist, or a budget that one request alone breaks.
    """
    rows = {row.name: row for row in plan.llms}
    models, notes = [], []
    for llm in spec.models:
        row = rows[name_of(llm)]
        if has_open_budget(llm):
            llm, told = _limited(llm, row, plan)
            notes.append(told)
        models.append(llm)
    return spec.model_copy(update={"models": tuple(models)}), notes


def _limited(llm: LlmSpec, row: LlmPlan, plan: Plan) -> tuple[LlmSpec, str]:
    gpu = planned_gpu(plan)
    if gpu is None:
        raise PlanError(
            f"{row.name}: no figures of this machine's CPU exist, from which a budget could set limits",
            "measure and calibrate: trtbuild simulate --calibration-load FILE, bench --load FILE, "
            "simulate --from-run RUN --ttft-ms MS",
            "--concurrency N instead of a budget",
        )
    assert llm.ttft_ms is not None
    system = gpu_system(
        row, architecture=resolve(llm).architecture, gpu=gpu, target=plan.target,
        constants=latency_constants(),
    )  # fmt: skip
    isl, osl = llm.usual_input_tokens, llm.usual_output_tokens
    isl, osl = min(isl, row.max_input_tokens), min(osl, row.max_output_tokens)
    mix = Mix(
        isl=Lengths(isl, LENGTH_VARIATION, row.max_input_tokens),
        osl=Lengths(osl, LENGTH_VARIATION, row.max_output_tokens),
        limit=row.max_output_tokens,
    )
    budget = Budget(llm.ttft_ms / 1e3, _PERCENTILE)
    choice = best_limits(
        system, mix, budget,
        most_batch=llm.concurrency or max(1, min(row.max_concurrency, llm.max_batch_size or 4096)),
        most_tokens=llm.max_num_tokens or LARGEST_STEP_TOKENS,
        requests=_REQUESTS,
    )  # fmt: skip
    if choice is None:
        alone = forecast(system, mix, Level(users=1), requests=_REQUESTS).ttft_s[_PERCENTILE]
        raise PlanError(
            f"{row.name}: no limits keep TTFT P{_PERCENTILE} within {llm.ttft_ms:g} ms: the nearest is one "
            f"user alone with {alone.value * 1e3:.0f} ms ({alone.low * 1e3:.0f} to {alone.high * 1e3:.0f}), "
            f"prompts of {isl} tokens on average",
            "a longer budget, shorter prompts (usual_input_tokens), a faster GPU, or tp",
        )
    limited = llm.model_copy(
        update={
            "concurrency": llm.concurrency or choice.max_batch_size,
            "max_num_tokens": llm.max_num_tokens or choice.max_num_tokens,
        }
    )
    low, high = _bars(system, mix, budget, choice)
    planned = most_rate(system, mix, budget, requests=_REQUESTS)
    return limited, (
        f"{row.name}: max_batch_size {limited.concurrency} and max_num_tokens {limited.max_num_tokens} carry "
        f"{choice.rate:.3g} requests a second ({low:.3g} to {high:.3g}) with TTFT P{_PERCENTILE} within "
        f"{llm.ttft_ms:g} ms, prompts of {isl} and answers of {osl} tokens on average; without it the plan "
        f"has {row.max_batch_size} and {row.max_num_tokens}, which carry {planned:.3g}"
    )


def _bars(system: System, mix: Mix, budget: Budget, choice: Choice) -> tuple[float, float]:
    """The rate with steps as slow and as fast as published figures make likely."""
    limits = replace(
        system.limits, max_batch_size=choice.max_batch_size, max_num_tokens=choice.max_num_tokens
    )
    spread = system.spreads["tpot"]
    rates = [
        most_rate(
            replace(system, limits=limits, cost=system.cost.scaled(factor)), mix, budget, requests=_REQUESTS
        )
        for factor in (spread.p10, spread.p90)
    ]
    return min(*rates, choice.rate), max(*rates, choice.rate)
