"""The old KV pools in the new plan: as large as they were, as far as that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trtbuild.lint.findings import Place
from trtbuild.migrate.describe import Described
from trtbuild.migrate.facts import Facts
from trtbuild.migrate.notes import Note
from trtbuild.plan.model import LlmPlan, Plan
from trtbuild.prepare import Prepared
from trtbuild.spec import DeploymentSpec, LlmSpec

_BACKEND_FRACTION = 0.9  # kv_cache_free_gpu_mem_fraction where nothing says it
_SHORTEST_TOKENS = 64  # a pool below it serves nothing
_GIB = 1 << 30

Update = dict[str, Any]


def fitted(
    spec: DeploymentSpec,
    facts: Sequence[Facts],
    described: Sequence[Described],
    plan: Callable[[DeploymentSpec], Prepared],
    *,
    may_cut: bool,
) -> tuple[Prepared, list[Note]]:
    """The first that fits of: the old pools and requests at once, the old pools, the old requests, neither.

    Where none does and prompts were to run whole, all of it again with chunked context. Where the old
    repository left the pool to the backend, the planned pool is tried before the old one.

    Args:
        may_cut: a sequence longer than the old pool is cut to it, as the old server did without a word.
    """
    few: list[Update] = [{"concurrency": None} for _ in facts]
    old = _pools(spec, facts, plan, may_cut=may_cut)
    without = _pools(_with(spec, few), facts, plan, may_cut=may_cut)
    unplanned: list[Update] = [{**pool, **free} for pool, free in zip(without, few, strict=True)]
    attempts: list[list[Update]] = [old, unplanned, [{} for _ in facts], few]
    if all(known.kv_tokens is None and known.kv_fraction is None for known in facts):
        attempts.insert(0, attempts.pop(2))
    for update in attempts:
        prepared = plan(_with(spec, update))
        if prepared.plan.fits and not prepared.plan.errors:
            return prepared, list(_notes(prepared.plan, spec, facts, described))
    if not all(llm.chunked_context for llm in spec.models):
        in_chunks = _with(spec, [{"chunked_context": True} for _ in facts])
        return fitted(in_chunks, facts, described, plan, may_cut=may_cut)
    return prepared, list(_notes(prepared.plan, spec, facts, described))


def _pools(
    spec: DeploymentSpec,
    facts: Sequence[Facts],
    plan: Callable[[DeploymentSpec], Prepared],
    *,
    may_cut: bool,
) -> list[Update]:
    """Each model's pool: the smaller of its cap in tokens and its share of what is free when it loads."""
    least = plan(_with(spec, [{"kv_tokens": _longest(llm)} for llm in spec.models])).plan
    room_bytes = least.free_bytes + sum(llm.kv_bytes * llm.instances for llm in least.llms)
    updates: list[Update] = []
    for known, planned, llm in zip(facts, least.llms, spec.models, strict=True):
        share = known.kv_fraction[0] if known.kv_fraction is not None else _BACKEND_FRACTION
        token_bytes = planned.instances * planned.kv_bytes_per_token
        tokens = int(share * room_bytes / token_bytes)
        if known.kv_tokens is not None:
            tokens = min(tokens, known.kv_tokens.value)
        tokens = tokens // planned.tokens_per_block * planned.tokens_per_block
        room_bytes -= tokens * token_bytes
        if tokens >= _longest(llm):
            updates.append({"kv_tokens": tokens})
        elif may_cut and tokens >= _SHORTEST_TOKENS:
            out = min(llm.max_output_tokens, tokens // 4)
            updates.append({"kv_tokens": tokens, "max_input_tokens": tokens - out, "max_output_tokens": out})
        else:
            updates.append({})
    return updates


def _longest(llm: LlmSpec) -> int:
    return llm.max_input_tokens + llm.max_output_tokens


def _notes(
    plan: Plan, spec: DeploymentSpec, facts: Sequence[Facts], described: Sequence[Described]
) -> Iterator[Note]:
    for entry, planned, known, llm in zip(described, plan.llms, facts, spec.models, strict=True):
        if entry.batch is not None:
            fewer = planned.max_batch_size < entry.batch.value
            yield Note(
                entry.batch.place,
                "changed" if fewer else "carried",
                f"{entry.batch.value} requests at once",
                f"max_batch_size {planned.max_batch_size}",
                "more do not fit beside the weights and the KV cache: --concurrency N" if fewer else "",
            )
        if planned.max_seq_len < _longest(llm) and known.max_seq_len is not None:
            now = f"{planned.max_input_tokens} tokens in, {planned.max_output_tokens} out"
            why = "the KV cache held no more, and the old server cut them without a word"
            yield Note(known.max_seq_len.place, "changed", f"sequences of {_longest(llm)} tokens", now, why)
        yield from _switches(known, planned)
        now = f"a pool of {planned.kv_tokens} tokens ({planned.kv_bytes / _GIB:.2f} GiB)"
        for text, place in _old_pool(known):
            yield Note(place, "changed", text, now, "counted in tokens, whatever loads first")


_SWITCHES = {"kv_reuse": "KV reuse", "chunked_context": "chunked context"}


def _switches(facts: Facts, planned: LlmPlan) -> Iterator[Note]:
    for switch, (was, place) in facts.switches.items():
        now: bool = getattr(planned, switch)
        item, new = f"{_SWITCHES[switch]} {'on' if was else 'off'}", f"{switch} {str(now).lower()}"
        if now != was:
            why = "whole prompts in one step do not fit" if now else "the KV type does not allow it"
            yield Note(place, "changed", item, new, why, behaviour=True)
        elif not was:
            yield Note(place, "carried", item, new)


def _old_pool(facts: Facts) -> Iterator[tuple[str, Place]]:
    if facts.kv_tokens is not None:
        yield f"a pool of {facts.kv_tokens.value} tokens", facts.kv_tokens.place
    if facts.kv_fraction is not None:
        yield f"{facts.kv_fraction[0]:g} of what is free at load for the KV cache", facts.kv_fraction[1]


def _with(spec: DeploymentSpec, updates: Sequence[Update]) -> DeploymentSpec:
    models = [llm.model_copy(update=update) for llm, update in zip(spec.models, updates, strict=True)]
    return spec.model_copy(update={"models": tuple(models)})
