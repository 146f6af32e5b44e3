"""From a spec to the system that the latency model simulates."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from trtbuild.catalog.latency import latency_constants
from trtbuild.errors import PlanError
from trtbuild.measure.calibration import disturbed, measured_requests
from trtbuild.plan.device import planned_gpu
from trtbuild.plan.latency.budget import (
    LARGEST_STEP_TOKENS,
    Budget,
    best_limits,
    most_rate,
    most_users,
    replicas_for,
)
from trtbuild.plan.latency.calibrate import calibrate
from trtbuild.plan.latency.forecast import System, forecast
from trtbuild.plan.latency.load import Lengths
from trtbuild.plan.latency.mix import Level, Mix
from trtbuild.plan.latency.replica import Policy
from trtbuild.plan.latency.system import evidence, gpu_system, limits_of
from trtbuild.plan.model import LlmPlan, Plan
from trtbuild.plan.sources import resolve
from trtbuild.prepare import prepare
from trtbuild.spec import DeploymentSpec

if TYPE_CHECKING:
    from trtbuild.measure.records.record import Record

_ALONE_REQUESTS = 50  # all but the first find the prefix


@dataclass(frozen=True)
class Deployment:
    """One language model of a plan, ready to be simulated."""

    plan: Plan
    llm: LlmPlan
    system: System
    notes: tuple[str, ...]

    def within(
        self,
        budget: Budget,
        mix: Mix,
        *,
        system: System,
        fleet_rate: float | None,
        requests: int,
        seed: int,
    ) -> dict[str, Any]:
        """The load that keeps a budget, the limits that carry most within it, replicas for a rate."""
        rate = most_rate(system, mix, budget, requests=requests, seed=seed)
        answer: dict[str, Any] = {
            "ttft_ms": budget.ttft_s * 1e3,
            "percentile": budget.percentile,
            "rate": rate,
            "users": most_users(system, mix, budget, requests=requests, seed=seed) if rate else 0,
        }
        if not rate:
            alone = forecast(system, mix, Level(users=1), requests=requests, seed=seed)
            return answer | {"alone_ms": alone.ttft_s[budget.percentile].value * 1e3, "limits": None}
        choice = best_limits(
            replace(system, replicas=self.llm.instances),
            mix,
            budget,
            most_batch=max(1, self.llm.max_concurrency),
            most_tokens=LARGEST_STEP_TOKENS,
            requests=requests,
            seed=seed,
        )
        answer["limits"] = asdict(choice) if choice else None
        if fleet_rate is not None:
            answer["fleet_rate"] = fleet_rate
            answer["replicas"] = replicas_for(system, mix, fleet_rate, budget, requests=requests, seed=seed)
        return answer

    def explain(self, mix: Mix) -> str:
        """Where a step's time goes, and what the constants rest on."""
        cost, work = self.system.cost, self.system.cost.work
        batch = float(self.llm.max_batch_size)
        cached = batch * (mix.isl.mean + mix.osl.mean / 2)
        decode_s = cost.base_s(batch, batch) + cost.kv_token_s * cached
        prompt_s = cost.base_s(mix.isl.mean, 1.0) + cost.pair_s * mix.isl.mean**2 / 2
        rates = cost.rates
        overhead_s = rates.step_s + rates.layer_s * work.layers + rates.sequence_s * batch
        return "\n".join(
            (
                f"one GPU of {work.tp} reads {work.dense_bytes / 1e9:.2f} GB of weights each step and does "
                f"{work.dense_ops_per_token / 1e9:.2f} billion operations a token",
                f"a prompt of {mix.isl.mean:g} tokens alone takes {prompt_s * 1e3:.1f} ms",
                f"a step of {batch:g} sequences takes {decode_s * 1e3:.1f} ms, of which reading "
                f"{cached:,.0f} cached tokens is {cost.kv_token_s * cached * 1e3:.1f} ms and overhead "
                f"{overhead_s * 1e3:.1f} ms",
            )
        )


def deployment(
    spec: DeploymentSpec, *, policy: str = Policy.NO_EVICT, record: Record | None = None
) -> Deployment:
    """Plans a spec with one language model and makes it ready to be simulated.

    Args:
        record: a run on the same device, from which a step's cost is taken; None: from published figures.

    Raises:
        PlanError: several language models or none, a plan that does not fit, a device without figures, or a
            run from which no cost follows.
    """
    if len(spec.models) != 1:
        names = ", ".join(llm.name or llm.model for llm in spec.models) or "none"
        raise PlanError(
            f"one language model is simulated at a time, and here are {names}", "--model NAME alone"
        )
    prepared = prepare(spec)
    plan = prepared.plan
    if plan.errors or not plan.fits:
        raise PlanError(*_why_not(plan))
    if record is not None:
        return _on_run(plan, plan.llms[-1], record, policy, prepared.notes)
    gpu = planned_gpu(plan)
    llm = plan.llms[-1]
    if gpu is None:
        raise PlanError(
            "the target local is this machine's CPU, of which no published figures exist",
            "--from-run RUN calibrates on a recorded run; or --gpu NAME --target engine",
        )
    constants = latency_constants()
    system = gpu_system(
        llm,
        architecture=resolve(prepared.spec.models[0]).architecture,
        gpu=gpu,
        target=plan.target,
        constants=constants,
        policy=Policy(policy),
    )
    notes = (evidence(llm=llm, gpu=gpu, constants=constants), *prepared.notes)
    return Deployment(plan, llm, system, notes)


def _why_not(plan: Plan) -> tuple[str, ...]:
    """The first error of a plan that cannot be simulated, and every single change that helps."""
    errors = [finding for finding in plan.findings if finding.severity == "error"]
    helps = [
        f"{finding.remedy} ({finding.message})"
        for finding in plan.findings
        if finding.id.startswith("memory.") and finding.remedy
    ]
    slots = ["--max-batch-size N instead of --concurrency N: slots that share what room there is"]
    why = errors[0].message if errors else "it does not fit"
    return (f"what does not fit cannot be simulated: {why}", *helps, *(slots if not plan.fits else []))


def ttft_alone_s(found: Deployment, prompt_tokens: float, reused_tokens: float) -> float:
    """TTFT in seconds of one user's prompts, of which the first ``reused_tokens`` are in the cache."""
    shared = min(int(reused_tokens), int(prompt_tokens) - 1)
    mix = Mix(
        isl=Lengths(prompt_tokens),
        osl=Lengths(1),
        prefixes=1 if shared > 0 else 0,
        prefix_tokens=max(shared, 0),
    )
    return forecast(found.system, mix, Level(users=1), requests=_ALONE_REQUESTS).ttft_s[50].value


def deployment_of_run(record: Record, *, policy: str = Policy.NO_EVICT) -> Deployment:
    """The deployment that was measured, with a step's cost from the run.

    Raises:
        PlanError: the record has no plan with the model that was asked, or no cost follows from it.
    """
    data = record.deployment.get("plan")
    if not data:
        raise PlanError(
            f"run {record.run_id} was not of a repository that trtbuild planned: its limits are not known",
            "describe the deployment too: --model NAME --target TARGET …",
        )
    plan = Plan.model_validate(data)
    asked = {one.model for one in record.measured()}
    served = [llm for llm in plan.llms if asked & {llm.name, f"{llm.name}_engine", f"{llm.name}_ensemble"}]
    if len(served) != 1:
        names = ", ".join(sorted(asked))
        raise PlanError(f"run {record.run_id} asked {names}: not one language model of its plan")
    return _on_run(plan, served[0], record, policy, ())


def _on_run(plan: Plan, llm: LlmPlan, record: Record, policy: str, notes: tuple[str, ...]) -> Deployment:
    found = calibrate(
        measured_requests(record), max_num_tokens=llm.max_num_tokens, disturbed_s=disturbed(record)
    )
    system = System(
        found.cost,
        limits_of(llm, Policy(policy)),
        llm.instances,
        llm.tp / llm.instances,
        found.spreads,
        found.scatter,
    )
    told = (
        f"calibrated on {found.requests} answers of run {record.run_id}, at most {found.most_at_once} open: "
        f"median error {found.errors['ttft']:.0%} of the time to the first token, "
        f"{found.errors['tpot']:.0%} of a step"
    )
    return Deployment(plan, llm, system, (told, *notes))
