"""What keeps a budget: users, rates, limits and replicas, each searched for with simulations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trtbuild.errors import PlanError
from trtbuild.plan.latency.forecast import Outcome, System
from trtbuild.plan.latency.mix import Level, Mix, offered

LARGEST_STEP_TOKENS = 8192  # up to which a step is searched for
_CLOSER = 0.03  # a level is searched until it is known to 3 %


@dataclass(frozen=True)
class Budget:
    """The longest time to the first token, and of how many of a hundred requests it is kept."""

    ttft_s: float
    percentile: int = 95

    def kept(self, system: System, mix: Mix, level: Level, requests: int, seed: int) -> bool:
        """Whether a level keeps it, without error bars."""
        run = Outcome(system, offered(mix, level, requests, seed))
        return float(np.percentile(run.ttft_s, self.percentile)) <= self.ttft_s


def most_users(system: System, mix: Mix, budget: Budget, *, requests: int, seed: int = 1) -> int:
    """The largest number of users with which a budget is kept; 0: not even one."""
    limit = system.limits.max_batch_size * system.replicas * 4

    def kept(users: float) -> bool:
        return budget.kept(system, mix, Level(users=int(users)), max(requests, 5 * int(users)), seed)

    if not kept(1):
        return 0
    return int(_largest(kept, 1, limit, whole=True))


def most_rate(system: System, mix: Mix, budget: Budget, *, requests: int, seed: int = 1) -> float:
    """The most requests a second with which a budget is kept; 0: not even one now and then."""
    capacity = capacity_per_s(system, mix, requests=requests, seed=seed)

    def kept(rate: float) -> bool:
        return budget.kept(system, mix, Level(rate=rate), requests, seed)

    if not kept(capacity * 0.01):
        return 0.0
    return _largest(kept, capacity * 0.01, capacity)


def capacity_per_s(system: System, mix: Mix, *, requests: int, seed: int = 1) -> float:
    """Requests a second of engines that always have a full batch."""
    users = system.limits.max_batch_size * system.replicas
    at_once = offered(replace(mix, think_s=0.0), Level(users=users), max(requests, 4 * users), seed)
    run = Outcome(system, at_once)
    return run.requests_per_s


def _largest(kept: Callable[[float], bool], low: float, high: float, *, whole: bool = False) -> float:
    """Bisection between a level that keeps the budget and one beyond which none is asked for."""
    if kept(high):
        return high
    while high - low > (1 if whole else _CLOSER * low):
        middle = (low + high) / 2
        middle = float(int(middle)) if whole else middle
        if kept(middle):
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True)
class Choice:
    """Limits of the engine with the rate at which they keep the budget."""

    max_batch_size: int
    max_num_tokens: int
    rate: float


def best_limits(
    system: System,
    mix: Mix,
    budget: Budget,
    *,
    most_batch: int,
    most_tokens: int,
    requests: int,
    seed: int = 1,
) -> Choice | None:
    """The limits that carry the most requests a second within a budget, one parameter after the other.

    Batches are powers of two up to ``most_batch``, steps from a chunk of 256 tokens up to ``most_tokens``.
    Of limits that carry as much within 2 %, the smaller ones: they leave memory. None: no limits keep it.
    """

    def carried(batch: int, tokens: int) -> float:
        limits = replace(system.limits, max_batch_size=batch, max_num_tokens=tokens)
        if tokens < batch + limits.tokens_per_block:
            return 0.0
        if not limits.chunked_context and tokens < system.limits.max_num_tokens:
            return 0.0
        return most_rate(replace(system, limits=limits), mix, budget, requests=requests, seed=seed)

    batches = sorted({min(most_batch, 1 << power) for power in range(11)})
    steps = sorted({min(most_tokens, 256 << power) for power in range(7)})
    batch, tokens = system.limits.max_batch_size, system.limits.max_num_tokens
    rates: dict[tuple[int, int], float] = {}
    for _ in range(2):
        found = {size: carried(size, max(tokens, size + system.limits.tokens_per_block)) for size in batches}
        batch = _smallest_near_best(found)
        found = {size: carried(batch, size) for size in steps}
        tokens = _smallest_near_best(found)
        rates[batch, tokens] = found[tokens]
    (batch, tokens), rate = max(rates.items(), key=lambda item: item[1])
    return Choice(batch, tokens, rate) if rate else None


def _smallest_near_best(found: dict[int, float]) -> int:
    best = max(found.values())
    return min(size for size, rate in found.items() if rate >= 0.98 * best)


def replicas_for(
    system: System, mix: Mix, rate: float, budget: Budget, *, requests: int, seed: int = 1, most: int = 1000
) -> int:
    """The fewest replicas behind least-connections that keep a budget at a rate.

    Raises:
        PlanError: even one request alone breaks the budget; or more than ``most`` replicas are needed.
    """
    alone = most_rate(replace(system, replicas=1), mix, budget, requests=requests, seed=seed)
    if not alone:
        raise PlanError(
            f"one request alone takes longer to its first token than {budget.ttft_s * 1e3:g} ms",
            "a longer budget, shorter prompts, a faster GPU, or --tp",
        )
    count = max(1, int(rate / alone * 0.8))
    while count <= most:
        system = replace(system, replicas=count)
        if budget.kept(system, mix, Level(rate=rate), max(requests, 200 * count), seed):
            return count
        count = count + max(1, count // 20)
    raise PlanError(
        f"{rate:g} requests a second need more than the {most:,} replicas that are simulated; "
        f"one alone carries {alone:.3g} a second, which would make about {rate / alone:,.0f}",
        "count them for a part of the rate",
    )


def cost_per_million(*, price_per_gpu_hour: float, gpus: float, tokens_per_s: float) -> float:
    """Price of a million tokens at a rate of tokens."""
    return price_per_gpu_hour * gpus / 3600 / tokens_per_s * 1e6
