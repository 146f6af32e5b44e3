"""What limits a server, in words: from a recorded run, with the evidence and the next change to try.

Each rule looks at one possible limit and says how much of the time it explains (``weight``, 0 to 1), so that
the first finding is the one to act on. Thresholds are where a cause begins to matter, not where it is alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trtbuild.measure.load.sample import RequestSample
from trtbuild.measure.records.record import Record

MATTERS = 0.1  # of the time to the first token, or of the latency
FULL_KV = 0.9
MIXED = 4.0  # longest over shortest prompts, at P90 and P10
LOW_HITS = 0.2
STANDSTILL_S = 1.0  # shorter silences are not looked for
STANDSTILL = 4.0  # times the usual wait for a first token, or for the next
FEW_STEPS = 5.0


@dataclass(frozen=True)
class Limit:
    """One thing that limits. ``weight``: the share of the latency or capacity that it explains."""

    name: str
    weight: float
    evidence: str
    change: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Facts:
    """What the rules read: medians over the run's good requests, and the server's side."""

    ttft_s: float
    decode_s: float
    latency_s: float
    prompts: tuple[int, ...]
    server: dict[str, dict[str, float]]
    record: Record

    def front(self) -> dict[str, float]:
        """The row of the model that was called."""
        return self.server.get(next(iter(self.record.deployment.get("models", ())), ""), {})

    def engine(self) -> dict[str, float]:
        """The row of the engine behind it: the one with a KV pool or a batch in flight."""
        rows = (row for row in self.server.values() if "kv_max_max" in row or "generation_mean" in row)
        return next(rows, {})

    def plan(self) -> dict[str, Any]:
        """The plan's row of the model that was called."""
        called = self.record.deployment.get("models", [])
        rows = (self.record.deployment.get("plan") or {}).get("models", ())
        return next((row for row in rows if row["name"] in called), {})


def facts_of(record: Record) -> Facts | None:
    """None where no request ended well."""
    well = [one for one in record.measured() if one.outcome == "ok" and one.latency_s is not None]
    if not well:
        return None

    def median(values: list[float]) -> float:
        return float(np.median(values)) if values else 0.0

    ttft_s = median([one.ttft_s for one in well if one.ttft_s is not None])
    latency_s = median([one.latency_s for one in well if one.latency_s is not None])
    prompts = tuple(one.prompt_tokens for one in well if one.prompt_tokens)
    return Facts(ttft_s, latency_s - ttft_s, latency_s, prompts, record.metrics.get("server", {}), record)


def diagnose(record: Record) -> list[Limit]:
    """What limits, the weightiest first; empty if nothing stands out."""
    found = [*_silence(record), *_failures(record)]
    facts = facts_of(record)
    if facts is not None:
        found += [limit for rule in _RULES for limit in rule(facts)]
    return sorted(found, key=lambda limit: -limit.weight)


def _silence(record: Record) -> Iterator[Limit]:
    """A time in which requests were open and nobody got anything, far longer than the usual waits."""
    requests = [one for one in record.requests if one.sent_s is not None]
    came = [at_s for one in requests for at_s in (one.arrival_s or ([one.first_s] if one.first_s else []))]
    first_s = [one.ttft_s for one in requests if one.ttft_s is not None]
    gaps_s = [gap_s for one in requests for gap_s in one.itl_s()]
    usual_s = max(float(np.median(values)) if values else 0.0 for values in (first_s, gaps_s))
    begin_s, end_s = _longest_silence(requests, came)
    length_s = end_s - begin_s
    if length_s < max(STANDSTILL_S, STANDSTILL * usual_s):
        return
    asked = [one for one in requests if begin_s <= one.intended_s < end_s]
    lost = sum(one.outcome != "ok" for one in asked)
    yield Limit(
        "standstill", 1.0,
        f"the server gave nothing for {length_s:.1f} s, from {begin_s:.1f} to {end_s:.1f} s, while requests "
        f"were open; of the {len(asked)} that were sent in it {lost} failed",
        "see what it did then: its log (`trtbuild logs`), the machine's memory and swap, who else used the "
        "GPU; figures of this run are of that as much as of the load",
    )  # fmt: skip


def _longest_silence(requests: Sequence[RequestSample], came: Sequence[float]) -> tuple[float, float]:
    """The longest time, (begin_s, end_s), without an arrival and with a request open throughout."""
    changes = sorted(
        [(one.sent_s or 0.0, 1) for one in requests]
        + [(one.end_s, -1) for one in requests if one.end_s is not None]
        + [(at_s, 0) for at_s in came]
    )
    longest, begin_s, open_now = (0.0, 0.0), 0.0, 0
    for at_s, change in changes:
        if open_now and at_s - begin_s > longest[1] - longest[0]:
            longest = (begin_s, at_s)
        if change == 0 or open_now == 0:
            begin_s = at_s
        open_now += change
    return longest


def _failures(record: Record) -> Iterator[Limit]:
    measured = record.measured()
    failed = [one for one in measured if one.outcome in ("error", "timeout", "refused")]
    if measured and len(failed) / len(measured) > 0.01:
        kinds = [one.error or one.outcome for one in failed]
        share = len(failed) / len(measured)
        yield Limit(
            "failures", 1.0,
            f"{share:.1%} of the requests failed, most with: {max(set(kinds), key=kinds.count)}",
            "mend this first: `trtbuild doctor REPO`, and the server's log (`trtbuild logs`)",
        )  # fmt: skip
    own = record.generator
    if own and own.get("cpu_share", 0.0) > 0.85:
        yield Limit(
            "load generator", 0.9, f"the generator used {own['cpu_share']:.0%} of its core",
            "measure from another machine, or with fewer streams a process: these figures are partly its own",
        )  # fmt: skip


def _queue(facts: Facts) -> Iterator[Limit]:
    """Waiting for a place in the engine's batch."""
    wait_s = facts.engine().get("engine_wait_s", 0.0)
    share = wait_s / facts.ttft_s if facts.ttft_s else 0.0
    if share <= MATTERS:
        return
    places = facts.plan().get("max_batch_size")
    full = facts.engine().get("generation_max", 0.0)
    evidence = (
        f"requests wait {1e3 * wait_s:.0f} ms in the mean for a place in the engine, {min(share, 1):.0%} of "
        f"the TTFT; at most {facts.engine().get('waiting_max', 0):.0f} waited and {full:.0f} generated"
    )
    if facts.engine().get("kv_share_max", 0.0) >= FULL_KV:
        change = "the KV pool is what is full: see there"
    elif places:
        change = f"a larger max_batch_size than {places} (`concurrency`) if TPOT has room, or fewer users"
    else:
        change = "a larger max_batch_size if TPOT has room, or fewer users"
    yield Limit("queue", min(share, 1.0), evidence, change)


def _kv(facts: Facts) -> Iterator[Limit]:
    share = facts.engine().get("kv_share_max", 0.0)
    waits = facts.engine().get("waiting_max", 0.0)
    if share >= FULL_KV:
        yield Limit(
            "KV cache", 0.5 + 0.5 * (waits > 0),
            f"{share:.0%} of the KV blocks were in use at most{', while requests waited' if waits else ''}",
            "a larger pool (`kv_tokens`), shorter sequences, an 8-bit KV cache, or fewer sequences at once",
        )  # fmt: skip


def _first_s(facts: Facts) -> float:
    """Of the time before the first token, what is not waiting for a place."""
    wait_s = facts.engine().get("engine_wait_s", 0.0) + facts.front().get("queue_wait_s", 0.0)
    return max(0.0, facts.ttft_s - wait_s)


def _is_few_steps(first_s: float, step_s: float | None) -> bool:
    """Whether it is the step that runs, and the request's own: no prompt makes that shorter."""
    return step_s is not None and first_s < FEW_STEPS * step_s


def _prefill(facts: Facts) -> Iterator[Limit]:
    own_s = _first_s(facts)
    share = own_s / facts.latency_s if facts.latency_s else 0.0
    if not facts.decode_s or share <= 0.4 or not facts.prompts:
        return
    tokens = float(np.median(facts.prompts))
    step_s = _tpot_s(facts.record)
    if _is_few_steps(own_s, step_s):
        return
    if step_s is not None and own_s > (tokens + FEW_STEPS) * step_s:
        yield Limit(
            "waiting that no metric shows", share,
            f"{1e3 * own_s:.0f} ms go by before the first token, and a prompt of {tokens:.0f} tokens cannot "
            f"take longer than as many steps, {1e3 * tokens * step_s:.0f} ms",
            "look before the engine: the front's CPU (`trtbuild doctor`), the network, another model's steps",
        )  # fmt: skip
    else:
        yield Limit(
            "prefill", share,
            f"{share:.0%} of a request's time goes by before its first token, {1e3 * own_s:.0f} ms of it not "
            f"waiting; prompts have {tokens:.0f} tokens in the median",
            "shared beginnings and KV reuse (`trtbuild prefix`), a larger max_num_tokens, shorter prompts",
        )  # fmt: skip


def _tpot_s(record: Record) -> float | None:
    value: float | None = ((record.metrics.get("all", {}).get("tpot_s") or {}).get("p50") or {}).get("value")
    return value


def _decode(facts: Facts) -> Iterator[Limit]:
    tpot, first_s = _tpot_s(facts.record), _first_s(facts)
    in_steps_s = facts.decode_s + (first_s if facts.decode_s and _is_few_steps(first_s, tpot) else 0.0)
    share = in_steps_s / facts.latency_s if facts.latency_s else 0.0
    if share > 0.5:
        running = facts.engine().get("generation_mean")
        beside = f", {running:.1f} generate at once in the mean" if running is not None else ""
        pace = f"TPOT P50 {1e3 * tpot:.1f} ms" if tpot is not None else "no TPOT"
        yield Limit(
            "decode", 0.6 * share, f"{share:.0%} of a request's time is decoding ({pace}{beside})",
            "fewer bits a weight (fp8, AWQ), a faster GPU, shorter answers; more users only if TPOT has room",
        )  # fmt: skip


def _front(facts: Facts) -> Iterator[Limit]:
    """The text front is one process: at a whole core it is the bottleneck."""
    for model, row in facts.server.items():
        busy = row.get("cpu_cores_mean", 0.0)
        if model in facts.record.deployment.get("models", ()) and busy > 0.7:
            yield Limit(
                "tokeniser and front", min(1.0, busy), f"the front {model} used {busy:.2f} of a core",
                "coalescing on, fewer stop strings, another front; or call the engine with token ids",
            )  # fmt: skip
    wait_s = facts.front().get("queue_wait_s", 0.0)
    if facts.ttft_s and wait_s / facts.ttft_s > MATTERS:
        yield Limit(
            "Triton's queue", min(1.0, wait_s / facts.ttft_s),
            f"requests wait {1e3 * wait_s:.1f} ms in Triton's own queue before the model sees them",
            "more instances of the model, or a shorter max_queue_delay",
        )  # fmt: skip


def _batching(facts: Facts) -> Iterator[Limit]:
    """Dynamic batching that waits and finds nobody."""
    for model, row in facts.server.items():
        executions, batch = row.get("executions", 0.0), row.get("batch", 0.0)
        wait_s, work_s = row.get("queue_us", 0.0) / 1e6, row.get("compute_us", 0.0) / 1e6
        if executions >= 20 and 0 < batch < 1.2 and work_s and wait_s > 0.3 * work_s:
            yield Limit(
                "batching delay", min(1.0, wait_s / (wait_s + work_s)),
                f"{model} waits {1e3 * wait_s / executions:.1f} ms an execution to fill batches, and they "
                f"hold {batch:.2f} requests",
                "a shorter max_queue_delay, or none, at this load",
            )  # fmt: skip


def _mixed(facts: Facts) -> Iterator[Limit]:
    if len(facts.prompts) < 20:
        return
    low, high = np.quantile(facts.prompts, [0.1, 0.9])
    by_class = {
        name: ((row.get("ttft_s") or {}).get("p50") or {}).get("value")
        for name, row in facts.record.metrics.get("traffic", {}).items()
    }
    known = [value for value in by_class.values() if value]
    if low and high / low >= MIXED and len(known) > 1:
        yield Limit(
            "mixed lengths", 0.4,
            f"prompts have {low:.0f} to {high:.0f} tokens (P10, P90) in one queue; TTFT P50 by class: "
            + ", ".join(f"{name} {1e3 * value:.0f} ms" for name, value in by_class.items() if value),
            "a smaller max_num_tokens with chunked context, or an instance of their own for long prompts",
        )  # fmt: skip


def _prefix(facts: Facts) -> Iterator[Limit]:
    """Prompts that are alike, and blocks that are not reused."""
    record = facts.record
    shared = sum(one.prefix_tokens for one in record.measured())
    size = facts.engine().get("kv_tokens_per_block_mean", 0.0)
    reused = facts.engine().get("kv_reused")
    if not shared or not size or reused is None:
        return
    hits = min(1.0, reused * size / shared)
    if hits < LOW_HITS:
        yield Limit(
            "low prefix hits", 0.5,
            f"{shared} prompt tokens are shared by design, and {hits:.0%} were reused",
            "KV reuse on, the shared part at the very beginning (`trtbuild prefix`), a pool that keeps it",
        )  # fmt: skip


def _idle(facts: Facts) -> Iterator[Limit]:
    gpus = [row["gpu_busy_mean"] for model, row in facts.server.items() if "gpu_busy_mean" in row]
    if gpus and max(gpus) < 0.5 and facts.engine().get("waiting_max", 0.0) == 0:
        yield Limit(
            "too little load", 0.3, f"the GPU is busy {max(gpus):.0%} of the time and nobody waits",
            "more users, or fewer replicas",
        )  # fmt: skip


_RULES: tuple[Callable[[Facts], Iterator[Limit]], ...] = (
    _queue, _kv, _prefill, _decode, _front, _batching, _mixed, _prefix, _idle,
)  # fmt: skip
