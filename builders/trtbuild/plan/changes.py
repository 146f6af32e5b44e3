"""Changes to a plan that does not fit: each is tried by planning it, and by every rule that a build has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trtbuild.catalog.formats import Format, all_formats, all_kv_dtypes
from trtbuild.catalog.gpus import Gpu
from trtbuild.errors import TrtbuildError
from trtbuild.plan.ledger import plural
from trtbuild.plan.model import Finding, LlmPlan, Plan
from trtbuild.spec import DeploymentSpec

_SHORTEST_INPUT = 64
TPS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Change:
    """One change that makes it fit, as a flag, with the plan that it leads to."""

    id: str
    what: str
    flag: str
    plan: Plan

    def finding(self) -> Finding:
        llms = self.plan.llms
        carried = ", ".join(
            (f"{llm.name} " if len(llms) > 1 else "")
            + f"{llm.max_batch_size} at once with {llm.max_seq_len} tokens each"
            for llm in llms
        )
        return Finding(
            id=self.id, severity="info", message=f"{self.what}: fits ({carried})", remedy=self.flag
        )


@dataclass(frozen=True)
class Trial:
    """How a change is tried.

    Attributes:
        replan: plans a changed spec for a GPU, without advice.
        check: the errors of every rule that the command would apply to that plan.
    """

    replan: Callable[[DeploymentSpec, Gpu | None], Plan]
    check: Callable[[Plan, DeploymentSpec], Sequence[Finding]]

    def planned(self, spec: DeploymentSpec, gpu: Gpu | None) -> Plan | None:
        """The plan of a spec that breaks no rule of the planner, whether or not it fits."""
        try:
            plan = self.replan(spec, gpu)
        except TrtbuildError:
            return None
        return None if plan.errors else plan

    def accepted(self, spec: DeploymentSpec, gpu: Gpu | None) -> Plan | None:
        """The plan of a spec that fits and that the command would take."""
        plan = self.planned(spec, gpu)
        return plan if plan is not None and plan.fits and not self.refused(plan, spec) else None

    def refused(self, plan: Plan, spec: DeploymentSpec) -> bool:
        return any(finding.severity == "error" for finding in self.check(plan, spec))


@dataclass(frozen=True)
class Attempt:
    """Changes to one model of the spec."""

    spec: DeploymentSpec
    index: int
    llm: LlmPlan
    gpu: Gpu | None
    trial: Trial

    def with_(self, **update: object) -> DeploymentSpec:
        """The spec with this model changed."""
        models = list(self.spec.models)
        models[self.index] = models[self.index].model_copy(update=update)
        return self.spec.model_copy(update={"models": tuple(models)})

    def _fits(self, **update: object) -> Plan | None:
        return self.trial.accepted(self.with_(**update), self.gpu)

    def change(self, id_: str, what: str, flag: str, plan: Plan) -> Change:
        more = len(self.spec.models) > 1
        where = f"{self.llm.name}: " if more else ""
        return Change(id_, f"{self.llm.name}: {what}", where + flag, plan)

    def concurrency(self) -> Change | None:
        """The most sequences at once that fit."""
        best = _largest(1, self.llm.max_batch_size - 1, lambda count: self._fits(concurrency=count))
        if best is None:
            return None
        count, plan = best
        what = f"{plural(count, 'sequence')} at once instead of {self.llm.max_batch_size}"
        return self.change("memory.concurrency", what, f"--concurrency {count}", plan)

    def lengths(self) -> Change | None:
        """The longest input that fits with all else as it is."""
        best = _largest(
            _SHORTEST_INPUT,
            self.llm.max_input_tokens - 1,
            lambda tokens: self._fits(max_input_tokens=tokens, concurrency=self.llm.max_batch_size),
        )
        if best is None:
            return None
        tokens, plan = best
        what = f"inputs of at most {tokens} tokens instead of {self.llm.max_input_tokens}"
        return self.change(
            "memory.length", what, f"--max-input {tokens} --concurrency {self.llm.max_batch_size}", plan
        )

    def kv_dtype(self) -> Change | None:
        for kv in all_kv_dtypes():
            plan = None if kv.bits >= 16 else self._fits(kv_dtype=kv.name)
            if plan is not None:
                return self.change("memory.kv", f"KV cache in {kv.name}", f"--kv-dtype {kv.name}", plan)
        return None

    def instances(self) -> Change | None:
        if self.llm.instances == 1:
            return None
        best = _largest(1, self.llm.instances - 1, lambda count: self._fits(instances=count))
        if best is None:
            return None
        count, plan = best
        return self.change(
            "memory.instances",
            f"{plural(count, 'instance')} instead of {self.llm.instances}",
            f"--instances {count}",
            plan,
        )

    def formats(self, concurrency: int | None = None) -> Iterator[Change]:
        """Smaller weight formats that can be made from a 16-bit checkpoint, 8 bit before 4 bit."""
        if self.gpu is None:
            return
        done: set[int] = set()
        for fmt in self.smaller_formats():
            if fmt.bits in done:
                continue
            update: dict[str, object] = {"quant": fmt.name}
            if concurrency is not None:
                update["concurrency"] = concurrency
            plan = self._fits(**update)
            if plan is None:
                continue
            done.add(fmt.bits)
            flag = f"--quant {fmt.name}" + ("" if concurrency is None else f" --concurrency {concurrency}")
            what = f"weights in {fmt.name}" + (
                "" if concurrency is None else f", {concurrency} sequence at a time"
            )
            yield self.change("memory.format", what, flag, plan)

    def smaller_formats(self) -> list[Format]:
        """Narrower formats that can be had of a model, the widest first."""
        now = next((fmt.bits for fmt in all_formats() if fmt.name == self.llm.quant), 0)
        smaller = [fmt for fmt in all_formats() if fmt.bits < now and fmt.quality is None]
        return sorted(smaller, key=lambda fmt: -fmt.bits)

    def tp(self) -> Change | None:
        if self.gpu is None:
            return None
        for tp in TPS:
            if tp <= self.llm.tp:
                continue
            plan = self._fits(tp=tp)
            if plan is not None:
                return self.change("memory.tp", f"split over {tp} {self.gpu.name}", f"--tp {tp}", plan)
        return None


def _largest(low: int, high: int, fits: Callable[[int], Plan | None]) -> tuple[int, Plan] | None:
    """The largest value in [low, high] that fits, by halving: what fits at n fits at less."""
    plan = fits(low) if low <= high else None
    if plan is None:
        return None
    best = (low, plan)
    while low < high:
        middle = (low + high + 1) // 2
        plan = fits(middle)
        if plan is None:
            high = middle - 1
        else:
            best = (middle, plan)
            low = middle
    return best
