"""What is tried on a served repository: models stream, are cancelled, reuse a prefix, read a page.

A check that fails says what was seen; one that cannot be made here says why and proves nothing.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from trtbuild.doctor.prometheus import Metrics, parse_metrics
from trtbuild.plan.model import LlmPlan, VisionPlan
from trtbuild.spec import Task
from trtbuild.verify.page import PAGE, page_png

if TYPE_CHECKING:
    from tritonstream import Client

State = Literal["passed", "failed", "skipped"]
WAIT_S = 30.0  # for blocks to be given back, and for gauges, which the engine renews about ten times a second
CLEARLY_FASTER = 1.5  # a prompt that comes again, where the engine counts no reused blocks
_POLL_S = 0.1
_BLOCKS, _REQUESTS = "nv_trt_llm_kv_cache_block_metrics", "nv_trt_llm_request_metrics"
_SENTENCE = "The depot at the harbour keeps crates of oranges, letters and clocks for the morning train. "


@dataclass(frozen=True)
class Check:
    """One thing that was tried.

    Attributes:
        detail: what was seen, in a sentence.
        figures: the same as numbers, by names that carry their units.
    """

    name: str
    model: str
    state: State
    detail: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """An open client, and a way to read the server's metrics."""

    client: Client
    metrics_address: str

    def metrics(self) -> Metrics:
        """The server's metrics now; empty where the port does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=10) as answer:
                return parse_metrics(answer.read().decode("utf-8", errors="replace"))
        except OSError:
            return Metrics()

    def blocks(self, engine: str, kind: str) -> float | None:
        """A gauge of the engine's KV blocks; None where the engine does not tell."""
        return self.metrics().value(_BLOCKS, model=engine, kv_cache_block_type=kind)

    def active(self, engine: str) -> float | None:
        """Requests that an engine works on."""
        return self.metrics().value(_REQUESTS, model=engine, request_type="active")

    def until(self, condition: Callable[[], bool]) -> bool:
        """Whether it came true within ``WAIT_S``."""
        deadline_s = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)
        return True


def check_llm(bench: Bench, llm: LlmPlan, engine: str) -> Iterator[Check]:
    """All checks of one language model, whose engine is the model ``engine``."""
    yield _tried(check_stream, bench, llm, engine)
    yield _tried(check_cancel, bench, llm, engine)
    yield _tried(check_prefix, bench, llm, engine)
    yield _tried(check_longest, bench, llm, engine)


def check_vision(bench: Bench, vision: VisionPlan) -> Iterator[Check]:
    """All checks of one vision model."""
    if vision.task is Task.OCR:
        yield _tried(check_page, bench, vision, vision.name)


def _tried(check: Callable[..., Check], bench: Bench, plan: LlmPlan | VisionPlan, engine: str) -> Check:
    from tritonstream import TritonStreamError

    try:
        return check(bench, plan, engine)
    except TritonStreamError as error:
        return Check(check.__name__.removeprefix("check_"), plan.name, "failed", f"{error}")


def check_stream(bench: Bench, llm: LlmPlan, engine: str) -> Check:
    """An answer comes in more than one piece, and is counted."""
    tokens = min(32, llm.max_output_tokens)
    with bench.client.stream(llm.name, "Once upon a time", max_tokens=tokens) as stream:
        pieces = [text for text in stream.text_deltas() if text]
        answer = stream.completion
    times, count = answer.timings, answer.usage.completion_tokens
    figures = {
        "tokens": count,
        "pieces": len(pieces),
        "ttft_s": times.first_token_s if times else None,
        "total_s": times.total_s if times else None,
    }
    if not count:
        return Check("stream", llm.name, "failed", "an answer without a token", figures)
    if count > 2 and len(pieces) < 2:
        return Check("stream", llm.name, "failed", f"{count} tokens came in one piece: no streaming", figures)
    return Check("stream", llm.name, "passed", f"{count} tokens in {len(pieces)} pieces", figures)


def check_cancel(bench: Bench, llm: LlmPlan, engine: str) -> Check:
    """A stream that is left gives its KV blocks back, long before its answer would have ended."""
    before = bench.blocks(engine, "used")
    if before is None:
        why = "the engine tells no number of KV blocks in use"
        return Check("cancel", llm.name, "skipped", why)
    wanted = llm.max_output_tokens
    seen: list[float] = []

    def more_in_use() -> bool:
        seen.append(bench.blocks(engine, "used") or 0.0)
        return seen[-1] > before

    with bench.client.stream(llm.name, _SENTENCE * 4, max_tokens=wanted, min_tokens=wanted) as stream:
        next(iter(stream.text_deltas()), None)
        held = bench.until(more_in_use)
        made = stream.completion.usage.completion_tokens or 0
    left_s = time.monotonic()
    freed = bench.until(lambda: (bench.blocks(engine, "used") or 0.0) <= before and not bench.active(engine))
    figures = {
        "blocks_before": before,
        "blocks_while_running": max(seen),
        "blocks_after": bench.blocks(engine, "used"),
        "tokens_asked": wanted,
        "tokens_made": made,
        "freed_after_s": round(time.monotonic() - left_s, 2),
    }
    if not held:
        why = "the answer was over before a gauge showed its blocks"
        return Check("cancel", llm.name, "skipped" if freed else "failed", why, figures)
    if not freed:
        why = f"{figures['blocks_after']:.0f} KV blocks are in use {WAIT_S:.0f} s after the stream was left"
        return Check("cancel", llm.name, "failed", why, figures)
    held_blocks = max(seen) - before
    return Check("cancel", llm.name, "passed", f"{held_blocks:.0f} KV blocks, all given back", figures)


def check_prefix(bench: Bench, llm: LlmPlan, engine: str) -> Check:
    """A long prompt that comes again is not computed again."""
    if not llm.kv_reuse:
        return Check("prefix", llm.name, "skipped", "the plan has no KV reuse")
    # About 20 tokens a sentence; at least some whole blocks, and what the model takes.
    sentences = max(2, min(llm.max_input_tokens // 2, 24 * llm.tokens_per_block) // 20)
    prompt = f"Verified at {time.time_ns()}. " + _SENTENCE * sentences
    reused = bench.blocks(engine, "reused")
    first_s, second_s = (_first_token_s(bench, llm, prompt) for _ in range(2))
    figures: dict[str, Any] = {"first_ttft_s": first_s, "second_ttft_s": second_s}
    if reused is None:  # then only time tells, and it may be another request's
        figures["speedup"] = first_s / second_s if second_s else None
        faster = second_s * CLEARLY_FASTER <= first_s
        why = f"the first token came after {first_s:.3f} s, then {second_s:.3f} s; no count of reused blocks"
        return Check("prefix", llm.name, "passed" if faster else "skipped", why, figures)
    grew = bench.until(lambda: (bench.blocks(engine, "reused") or 0.0) > reused)
    figures["reused_blocks"] = (bench.blocks(engine, "reused") or 0.0) - reused
    if not grew:
        return Check("prefix", llm.name, "failed", "the same prompt again, and no block was reused", figures)
    count = figures["reused_blocks"]
    why = f"{count:.0f} blocks reused; the first token came after {first_s:.3f} s, then {second_s:.3f} s"
    return Check("prefix", llm.name, "passed", why, figures)


def _first_token_s(bench: Bench, llm: LlmPlan, prompt: str) -> float:
    with bench.client.stream(llm.name, prompt, max_tokens=2) as stream:
        for _ in stream.text_deltas():
            pass
        times = stream.completion.timings
    return (times.first_token_s or times.total_s) if times is not None else 0.0


def check_longest(bench: Bench, llm: LlmPlan, engine: str) -> Check:
    """The longest prompt that the plan allows is taken and answered."""
    from tritonstream import InvalidRequest

    low, high = 1, max(2, llm.max_input_tokens // 8)
    prompt, tokens = "", 0
    while low < high:  # the most sentences that the model takes, by its own count
        middle = (low + high + 1) // 2
        try:
            answer = bench.client.generate(llm.name, _SENTENCE * middle, max_tokens=1)
        except InvalidRequest:
            high = middle - 1
            continue
        low, prompt, tokens = middle, _SENTENCE * middle, answer.usage.prompt_tokens or 0
    figures = {"prompt_tokens": tokens, "max_input_tokens": llm.max_input_tokens}
    if not prompt or not tokens:
        return Check("longest", llm.name, "failed", "no prompt was taken, or none was counted", figures)
    near = tokens >= llm.max_input_tokens // 2
    return Check(
        "longest", llm.name, "passed" if near else "failed",
        f"a prompt of {tokens} tokens is answered; {llm.max_input_tokens} are planned", figures,
    )  # fmt: skip


def check_page(bench: Bench, vision: VisionPlan, engine: str) -> Check:
    """A drawn page is read."""
    try:
        page = page_png()
    except ImportError:
        return Check("page", vision.name, "skipped", "Pillow is not installed, which draws the page")
    started_s = time.monotonic()
    lines = [line.text for line in bench.client.ocr(vision.name, page).lines]
    figures = {"lines": lines, "drawn": list(PAGE), "read_s": round(time.monotonic() - started_s, 3)}
    missed = [line for line in PAGE if line not in lines]
    if missed:
        return Check(
            "page", vision.name, "failed", f"{len(missed)} of {len(PAGE)} lines were misread", figures
        )
    return Check("page", vision.name, "passed", f"{len(PAGE)} lines read as they were drawn", figures)
