"""One engine's scheduler: which tokens each step takes, as TensorRT-LLM's in-flight batching decides it.

A *run* is one step with prompt tokens in it, or as many steps of pure decoding as pass until the batch or
the pool changes: their times add up in closed form, because a step's time is linear in the cached tokens;
the first of them may take longer, where the step before it had another number of tokens.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush

from trtbuild.plan.latency.cost import StepCost
from trtbuild.plan.latency.kv_pool import KvPool
from trtbuild.plan.latency.load import Requests
from trtbuild.plan.latency.trace import Run, Trace


class Policy(str, Enum):
    """TensorRT-LLM's capacity scheduler: reserve each request's whole length, or fill the pool and pause."""

    NO_EVICT = "GUARANTEED_NO_EVICT"
    MAX_UTILIZATION = "MAX_UTILIZATION"


@dataclass(frozen=True)
class Limits:
    """The engine's limits, by the plan's names. The pool is that of one replica."""

    max_batch_size: int
    max_num_tokens: int
    kv_tokens: int
    tokens_per_block: int = 64
    chunked_context: bool = True
    reuse: bool = False
    policy: Policy = Policy.NO_EVICT


_NONE = Run(0, 0, 0, 0, 0, 0, 0)


class Replica:
    """State of one engine between its steps. Requests are row numbers of the shared ``requests``."""

    def __init__(
        self, *, cost: StepCost, limits: Limits, requests: Requests, trace: Trace, max_run: int = 1 << 60
    ) -> None:
        self._cost, self._limits, self._requests, self._trace = cost, limits, requests, trace
        self._times = trace.times
        self._kv_s, self._pair_s = cost.kv_token_s, cost.pair_s
        self._window_kv_s, self._window_pair_s = cost.window_kv_token_s, cost.window_pair_s
        self._window = cost.work.window
        self._decode_s: dict[int, float] = {}  # by batch, without attention
        self._pool = KvPool(
            blocks=limits.kv_tokens // limits.tokens_per_block,
            tokens_per_block=limits.tokens_per_block,
            reuse=limits.reuse,
        )
        self._pausing = limits.policy is Policy.MAX_UTILIZATION
        self._max_run = max_run
        self._waiting: deque[int] = deque()
        self._contexts: dict[int, int] = {}  # admitted, prompt not done → tokens in the cache
        self._decoding: dict[int, int] = {}  # → its cached tokens less the step count
        self._ends: list[tuple[int, int]] = []  # (step, request) of those that decode or did
        self._made: dict[int, int] = {}  # of paused requests: tokens made so far
        self._phases = [0] * limits.tokens_per_block  # sequences by (cached tokens - step) modulo the block
        self._step = 0
        self._kv = 0  # cached tokens of all that decode
        self._full = False  # the first that waits does not fit
        self._chunks: list[tuple[int, int]] = []
        self._run = _NONE
        self._begun_s = self._step_s = self._slope_s = self._reshape_s = 0.0
        self._last_tokens = 0  # of the step before
        self.busy = False

    def arrive(self, request: int) -> None:
        """A request joins the queue."""
        self._waiting.append(request)
        if self._trace.log is not None:
            self._trace.log.arrived[request] = len(self._trace.log.runs)

    def begin(self, now_s: float) -> float:
        """Plans the run that begins now; returns its end, infinity when there is nothing to do."""
        if self._pausing and self._decoding:
            self._pause_until_it_fits()
        if self._waiting:
            self._admit(now_s)
        batch = len(self._decoding)
        self._begun_s = now_s
        self.busy = True
        if self._contexts and self._fill(self._limits.max_num_tokens - batch):
            self._plan_mixed(batch)
        elif batch:
            self._plan_decoding(batch)
        if self._run.steps:
            changed = self._run.tokens != self._last_tokens
            self._reshape_s = self._cost.rates.reshape_s if changed else 0.0
            return now_s + self._span_s(self._run.steps)
        self.busy = False
        return math.inf

    def interrupt(self, now_s: float) -> float | None:
        """A request came: the new end of the run, that of its current step; None where it stays."""
        if self._run.steps <= 1 or self._full or self._slots_left() <= 0:
            return None
        steps = self._steps_until(now_s - self._begun_s)
        if steps >= self._run.steps:
            return None
        self._run = self._run._replace(steps=steps)
        return self._begun_s + self._span_s(steps)

    def end(self, now_s: float) -> list[int]:
        """The planned run is over; returns the requests that ended with it."""
        steps, batch = self._run.steps, len(self._decoding)
        self._record(now_s, batch, steps)
        if batch:
            if self._pausing:
                self._pool.grow(self._growth(steps))
            self._kv += batch * steps
        self._step += steps
        self._last_tokens = self._run.tokens
        ended: list[int] = []
        while self._ends and self._ends[0][0] <= self._step:
            step, request = heappop(self._ends)
            if request in self._decoding and self._end_step(request) == step:  # else it was paused meanwhile
                ended.append(request)
        for request in ended:
            self._leave_batch(request)
        if self._chunks:
            self._advance_prompts(now_s, ended)
        self._run = _NONE
        for request in ended:
            self._times.ended[request] = now_s
            self._made.pop(request, None)
            if self._trace.log is not None:
                self._trace.log.ended[request] = len(self._trace.log.runs)
        return ended

    def _slots_left(self) -> int:
        return self._limits.max_batch_size - len(self._decoding) - len(self._contexts)

    def _prompt(self, request: int) -> int:
        """Tokens to compute before the next one: the prompt, after a pause what was generated besides."""
        return self._requests.isl[request] + self._made.get(request, 0)

    def _end_step(self, request: int) -> int:
        """Step count at which a decoding request has all its tokens: the cache then lacks only the last."""
        return self._requests.isl[request] + self._requests.osl[request] - 1 - self._decoding[request]

    def _prefix(self, request: int) -> dict[str, int]:
        requests = self._requests
        if not requests.prefixes:
            return {"prefix": -1, "prefix_tokens": 0}
        return {"prefix": requests.prefixes[request], "prefix_tokens": requests.prefix_tokens[request]}

    def _admit(self, now_s: float) -> None:
        """Takes waiting requests in their order while there are slots, and blocks for the first of them."""
        requests, pool = self._requests, self._pool
        margin = self._growth(1) if self._pausing else 0
        self._full = False
        while self._waiting and self._slots_left() > 0:
            request = self._waiting[0]
            length = self._prompt(request)
            reserved = length + 1 if self._pausing else requests.isl[request] + requests.limit(request)
            if self._pausing and pool.blocks_of(reserved) + margin > pool.free:
                found = None
            else:
                found = pool.admit(request, reserved, **self._prefix(request))
            if found is None:
                self._full = True
                return
            self._waiting.popleft()
            # the last token of a prompt is always computed: its logits are what is asked for
            self._contexts[request] = found = min(found, length - 1)
            self._trace.reused_tokens += found
            if self._times.started[request] != self._times.started[request]:  # NaN: not before a pause
                self._times.started[request] = now_s

    def _fill(self, budget: int) -> bool:
        """Chooses the prompt tokens of the next step, first come first served; False: none fit."""
        chunked, unit = self._limits.chunked_context, self._limits.tokens_per_block
        for request, cached in self._contexts.items():
            take = self._prompt(request) - cached
            if take > budget:
                take = budget // unit * unit if chunked else 0
            if take <= 0:
                break
            self._chunks.append((request, take))
            budget -= take
        return bool(self._chunks)

    def _plan_mixed(self, batch: int) -> None:
        tokens, rows, pairs, window_pairs = batch, batch, 0.0, 0.0
        for request, taken in self._chunks:
            cached = self._contexts[request]
            tokens += taken
            rows += cached + taken == self._prompt(request)
            pairs += taken * cached + taken * (taken + 1) / 2
            if self._window is not None:
                window_pairs += _pairs_in_window(cached, taken, self._window)
        window_kv = self._window_kv(batch)
        self._run = Run(tokens, rows, self._kv, window_kv, pairs, window_pairs, 1)
        self._slope_s = 0.0
        self._step_s = (
            self._cost.base_s(float(tokens), float(rows))
            + self._cost.rates.prompt_s * (rows - batch)
            + self._kv_s * self._kv
            + self._window_kv_s * window_kv
            + self._pair_s * pairs
            + self._window_pair_s * window_pairs
        )

    def _plan_decoding(self, batch: int) -> None:
        base_s = self._decode_s.get(batch)
        if base_s is None:
            base_s = self._decode_s[batch] = self._cost.base_s(float(batch), float(batch))
        steps = min(self._ends[0][0] - self._step, self._max_run)
        window_kv, grows = self._window_kv(batch), 0
        if self._window is not None and window_kv < batch * self._window:
            grows = batch
            steps = min(steps, max(1, (batch * self._window - self._kv) // batch))
        if self._pausing and self._growth(steps) > self._pool.free:
            steps = self._steps_that_fit(steps)
        self._run = Run(batch, batch, self._kv, window_kv, 0.0, 0.0, steps)
        self._step_s = base_s + self._kv_s * self._kv + self._window_kv_s * window_kv
        self._slope_s = self._kv_s * batch + self._window_kv_s * grows

    def _window_kv(self, batch: int) -> int:
        return 0 if self._window is None else min(self._kv, batch * self._window)

    def _span_s(self, steps: int) -> float:
        return self._reshape_s + steps * self._step_s + self._slope_s * (steps * (steps - 1) / 2)

    def _steps_until(self, elapsed_s: float) -> int:
        """The first number of steps that takes ``elapsed_s`` or longer; at least one."""
        half, linear = self._slope_s / 2, self._step_s - self._slope_s / 2
        even_s = max(0.0, elapsed_s - self._reshape_s)
        if half <= 1e-6 * linear:
            steps = math.ceil(even_s / self._step_s)
        else:
            steps = math.ceil((math.sqrt(linear * linear + 4 * half * even_s) - linear) / (2 * half))
        steps = max(1, steps)
        while steps > 1 and self._span_s(steps - 1) >= elapsed_s:
            steps -= 1
        while self._span_s(steps) < elapsed_s:
            steps += 1
        return steps

    def _record(self, now_s: float, batch: int, steps: int) -> None:
        trace = self._trace
        span_s = now_s - self._begun_s
        trace.busy_s += span_s
        if batch:
            trace.token_s += batch * span_s
            trace.add_gaps(span_s / steps, batch * steps)
        if trace.log is not None:
            grown = batch * (steps - 1) / 2
            windowed = grown if self._window and self._run.window_kv_tokens < batch * self._window else 0.0
            row = self._run._replace(
                kv_tokens=self._run.kv_tokens + grown, window_kv_tokens=self._run.window_kv_tokens + windowed
            )
            trace.log.runs.append(row)
            trace.log.begun_s.append(self._begun_s)

    def _advance_prompts(self, now_s: float, ended: list[int]) -> None:
        for request, taken in self._chunks:
            self._contexts[request] += taken
            if self._contexts[request] < self._prompt(request):
                continue
            length = self._contexts.pop(request)
            self._pool.computed(request, **self._prefix(request))
            if request not in self._made:
                self._times.first[request] = now_s
                if self._trace.log is not None:
                    self._trace.log.first[request] = len(self._trace.log.runs)
            if self._requests.osl[request] <= self._made.get(request, 0) + 1:
                self._pool.release(request, length + 1 if self._pausing else None)
                ended.append(request)
            else:
                self._join_batch(request, length)
        self._chunks = []

    def _join_batch(self, request: int, cached: int) -> None:
        self._decoding[request] = cached - self._step
        self._kv += cached
        self._phases[(cached - self._step) % len(self._phases)] += 1
        heappush(self._ends, (self._end_step(request), request))

    def _leave_batch(self, request: int) -> None:
        offset = self._decoding.pop(request)
        cached = offset + self._step
        self._kv -= cached
        self._phases[offset % len(self._phases)] -= 1
        self._pool.release(request, cached + 1 if self._pausing else None)

    def _growth(self, steps: int) -> int:
        """Blocks that decoding sequences take in ``steps`` steps; each has room for one token more."""
        block = len(self._phases)
        cycles, rest = divmod(steps, block)
        crossing = sum(self._phases[-(self._step + ahead + 1) % block] for ahead in range(rest))
        return cycles * len(self._decoding) + crossing

    def _steps_that_fit(self, most: int) -> int:
        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            if self._growth(middle) <= self._pool.free:
                low = middle
            else:
                high = middle - 1
        return low

    def _pause_until_it_fits(self) -> None:
        """Returns what was started last to the queue until the others' next step fits the pool."""
        while self._growth(1) > self._pool.free and len(self._decoding) + len(self._contexts) > 1:
            self._trace.pauses += 1
            if self._contexts:
                request = next(reversed(self._contexts))
                del self._contexts[request]
                self._pool.release(request, self._prompt(request) + 1)
            else:
                request = next(reversed(self._decoding))
                cached = self._decoding[request] + self._step
                self._leave_batch(request)
                # the last token made is not in the cache yet: it is computed with the rest
                self._made[request] = cached - self._requests.isl[request] + 1
            self._waiting.appendleft(request)


def _pairs_in_window(cached: int, taken: int, window: int) -> float:
    """Pairs of ``taken`` tokens after ``cached`` ones, each attending to at most ``window`` tokens."""
    growing = min(taken, max(0, window - cached))
    return growing * cached + growing * (growing + 1) / 2 + (taken - growing) * window
