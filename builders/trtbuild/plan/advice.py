"""What would make a plan fit: each change is tried by planning again, and only what then fits is said.

In the order in which operators should try them: fewer sequences, shorter ones, a smaller KV type, 8-bit
before 4-bit weights, fewer copies, then more or larger GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trtbuild.catalog.formats import all_formats, all_kv_dtypes
from trtbuild.catalog.gpus import Gpu, all_gpus
from trtbuild.errors import TrtbuildError
from trtbuild.plan.ledger import plural
from trtbuild.plan.model import Finding, LlmPlan, Plan
from trtbuild.spec import DeploymentSpec

Replan = Callable[[DeploymentSpec, "Gpu | None"], Plan]

_GIB = 1 << 30
_SHORTEST_INPUT = 64
_TPS = (2, 4, 8)


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


def advise(spec: DeploymentSpec, plan: Plan, gpu: Gpu | None, replan: Replan) -> list[Finding]:
    """Findings for a plan that does not fit: what takes the room, then every single change that helps.

    Args:
        spec: what was asked for.
        plan: its plan, with ``fits`` False.
        gpu: the GPU; None for the target local.
        replan: plans a changed spec for a GPU, without advice.
    """
    changes = list(_singles(spec, plan, gpu, replan)) or list(_pairs(spec, plan, gpu, replan))
    return [_what_is_too_large(plan, bool(changes)), *(change.finding() for change in changes)]


def _what_is_too_large(plan: Plan, helped: bool) -> Finding:
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
        remedy="one of the changes listed" if helped else "several GPUs (--tp) or a smaller model",
    )


def _singles(spec: DeploymentSpec, plan: Plan, gpu: Gpu | None, replan: Replan) -> Iterator[Change]:
    for index, llm in enumerate(plan.llms[-len(spec.models) :] if spec.models else ()):
        attempt = _Attempt(spec, index, llm, gpu, replan)
        for change in (attempt.concurrency(), attempt.lengths(), attempt.kv_dtype(), attempt.instances()):
            if change is not None:
                yield change
        yield from attempt.formats()
        tp = attempt.tp()
        if tp is not None:
            yield tp
    if gpu is not None:
        larger = _smallest_gpu(spec, plan, gpu, replan)
        if larger is not None:
            yield larger


def _pairs(spec: DeploymentSpec, plan: Plan, gpu: Gpu | None, replan: Replan) -> Iterator[Change]:
    """The widest weight format that fits together with one sequence at a time."""
    for index, llm in enumerate(plan.llms[-len(spec.models) :] if spec.models else ()):
        attempt = _Attempt(spec, index, llm, gpu, replan)
        found = next(attempt.formats(concurrency=1), None)
        if found is not None:
            yield found


@dataclass(frozen=True)
class _Attempt:
    """Changes to one model of the spec."""

    spec: DeploymentSpec
    index: int
    llm: LlmPlan
    gpu: Gpu | None
    replan: Replan

    def _fits(self, **update: object) -> Plan | None:
        models = list(self.spec.models)
        models[self.index] = models[self.index].model_copy(update=update)
        spec = self.spec.model_copy(update={"models": tuple(models)})
        try:
            plan = self.replan(spec, self.gpu)
        except TrtbuildError:
            return None
        return plan if plan.fits and not plan.errors else None

    def _change(self, id_: str, what: str, flag: str, plan: Plan) -> Change:
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
        return self._change("memory.concurrency", what, f"--concurrency {count}", plan)

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
        return self._change(
            "memory.length", what, f"--max-input {tokens} --concurrency {self.llm.max_batch_size}", plan
        )

    def kv_dtype(self) -> Change | None:
        for kv in all_kv_dtypes():
            plan = None if kv.bits >= 16 else self._fits(kv_dtype=kv.name)
            if plan is not None:
                return self._change("memory.kv", f"KV cache in {kv.name}", f"--kv-dtype {kv.name}", plan)
        return None

    def instances(self) -> Change | None:
        if self.llm.instances == 1:
            return None
        best = _largest(1, self.llm.instances - 1, lambda count: self._fits(instances=count))
        if best is None:
            return None
        count, plan = best
        return self._change(
            "memory.instances",
            f"{plural(count, 'instance')} instead of {self.llm.instances}",
            f"--instances {count}",
            plan,
        )

    def formats(self, concurrency: int | None = None) -> Iterator[Change]:
        """Smaller weight formats that can be made from a 16-bit checkpoint, 8 bit before 4 bit."""
        if self.gpu is None:
            return
        now = next((fmt for fmt in all_formats() if fmt.name == self.llm.quant), None)
        smaller = [
            fmt
            for fmt in all_formats()
            if not fmt.needs_checkpoint and fmt.bits < (now.bits if now else 0) and fmt.quality is None
        ]
        done: set[int] = set()
        for fmt in sorted(smaller, key=lambda fmt: -fmt.bits):
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
            yield self._change("memory.format", what, flag, plan)

    def tp(self) -> Change | None:
        if self.gpu is None:
            return None
        for tp in _TPS:
            if tp <= self.llm.tp:
                continue
            plan = self._fits(tp=tp)
            if plan is not None:
                return self._change("memory.tp", f"split over {tp} {self.gpu.name}", f"--tp {tp}", plan)
        return None


def _smallest_gpu(spec: DeploymentSpec, plan: Plan, gpu: Gpu, replan: Replan) -> Change | None:
    for larger in sorted(all_gpus(), key=lambda card: card.memory_bytes):
        if larger.memory_bytes <= gpu.memory_bytes:
            continue
        try:
            tried = replan(spec, larger)
        except TrtbuildError:
            continue
        if tried.fits and not tried.errors:
            return Change(
                "memory.gpu",
                f"the smallest GPU that carries it is {larger.name} ({larger.memory_bytes / _GIB:.1f} GiB)",
                f"--gpu {larger.name.lower()}",
                tried,
            )
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
