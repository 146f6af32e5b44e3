"""``scripts/bench-local``: starts both arms on one repository, runs the pairs, prints the tables."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trtbuild.measure.bench_local import (
    CpuClock,
    InProcess,
    LevelResult,
    Pair,
    baseline,
    pin,
    prompts_for,
    run_served,
    summarise,
)
from trtbuild.measure.in_process import Burst, BurstResult, EngineSettings
from trtbuild.plan.model import LlmPlan, Plan

_WORDS = (
    "river",
    "stone",
    "lamp",
    "paper",
    "wind",
    "clock",
    "garden",
    "metal",
    "bread",
    "signal",
    "copper",
    "window",
    "yellow",
    "quiet",
    "ladder",
)


def engine_settings(plan: LlmPlan, *, threads: int) -> EngineSettings:
    """The in-process arm's limits: those of the plan, which the served engine reads from its configs."""
    return EngineSettings(
        num_kv_blocks=plan.kv_tokens // plan.tokens_per_block,
        max_num_seqs=plan.max_batch_size,
        max_num_batched_tokens=plan.max_num_tokens,
        enable_prefix_caching=plan.kv_reuse,
        dynamic_split_fuse=plan.chunked_context,
        threads=threads,
    )


def encoder(repository: Path, model: str) -> Any:
    """The model's tokenizer as the front loads it: both arms get the same ids."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(repository / model / "1" / "tokenizer" / "tokenizer.json"))


async def run_level(
    server: Any, arm: InProcess, tokenizer: Any, model: str, *, streams: int, pairs: int, max_tokens: int
) -> LevelResult:
    """``pairs`` interleaved pairs at one number of streams; which arm goes first alternates."""
    from tritonstream import AsyncClient

    clock = CpuClock(server.pid)
    done: list[Pair] = []
    async with AsyncClient(server.grpc_address) as client:
        for number in range(-1, pairs):  # -1 warms both up
            prompts = prompts_for(streams, round_number=1000 * streams + number)
            ids = tuple(tuple(tokenizer.encode(prompt).ids) for prompt in prompts)
            own = arm.run(Burst(ids, max_tokens)) if number % 2 else None
            before = clock.read()
            seconds, ttft_s, tokens = await run_served(client, model, prompts, max_tokens=max_tokens)
            spent = {role: total - before.get(role, 0.0) for role, total in clock.read().items()}
            served = BurstResult(seconds, tokens, sum(spent.values()), ttft_s)
            own = own or arm.run(Burst(ids, max_tokens))
            if number >= 0:
                done.append(Pair(served, own, spent))
    return summarise(streams, done)


async def prefix_ttft(server: Any, model: str, *, prompt_words: int, pairs: int) -> tuple[float, float]:
    """Medians of TTFT in seconds through the whole path: a cold prompt, and the same prefix seen before."""
    from tritonstream import AsyncClient

    cold: list[float] = []
    warm: list[float] = []
    async with AsyncClient(server.grpc_address) as client:
        for number in range(pairs):
            chance = random.Random(number)
            prefix = " ".join(chance.choices(_WORDS, k=prompt_words))
            for times, end in ((cold, "one"), (warm, "two")):
                _, ttft_s, _ = await run_served(client, model, [f"{prefix} {end}"], max_tokens=2)
                times.append(ttft_s)
    return statistics.median(cold), statistics.median(warm)


def table(levels: Sequence[LevelResult]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| streams | served tok/s | in process tok/s | ratio (range) | CPU ms/token | served, by process |"
    yield "|---|---|---|---|---|---|"
    for level in levels:
        spent = ", ".join(
            f"{role} {ms:.2f}" for role, ms in level.cpu_ms_per_token_by_process.items() if ms > 0.005
        )
        yield (
            f"| {level.streams} | {level.served_tokens_per_s:.0f} | {level.in_process_tokens_per_s:.0f} "
            f"| {level.ratio:.2f} ({level.ratio_low:.2f} to {level.ratio_high:.2f}, {level.pairs} pairs) "
            f"| {level.in_process_cpu_ms_per_token:.2f} | {spent} |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the arguments, runs, prints; ``--json`` writes the figures to a file as well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path, help="a repository of the target local")
    parser.add_argument("--streams", default="1,8,16,32")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0, help="of the in-process engine; 0: its own choice")
    parser.add_argument(
        "--pinned",
        action="store_true",
        help="the engine on one core in both arms, all else on another: what the path takes from the engine",
    )
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)

    from trtbuild.serve.server import start

    plan = Plan.model_validate_json((asked.repository / "plan.json").read_text())
    llm = plan.llms[0]
    weights = asked.repository / f"{llm.name}_engine" / "1" / "model.gguf"
    tokenizer = encoder(asked.repository, llm.name)
    levels = []
    if asked.pinned:
        engine_core, other_core = sorted(os.sched_getaffinity(0))[:2]
        os.environ["TRTBUILD_ENGINE_THREADS"] = "1"
        asked.threads = 1
        pin(os.getpid(), engine_core)  # both engines inherit it; OpenVINO keeps to the core that it finds
    with (
        baseline(weights, engine_settings(llm, threads=asked.threads)) as arm,
        start(asked.repository) as server,
    ):
        if asked.pinned:
            for process in CpuClock(server.pid).processes_but("tensorrtllm"):
                pin(process, other_core)
            pin(os.getpid(), other_core)
        for streams in (int(word) for word in asked.streams.split(",")):
            level = run_level(
                server,
                arm,
                tokenizer,
                llm.name,
                streams=streams,
                pairs=asked.pairs,
                max_tokens=asked.max_tokens,
            )
            levels.append(asyncio.run(level))
            print(f"{streams} streams: ratio {levels[-1].ratio:.2f}", file=sys.stderr)
        cold_s, warm_s = asyncio.run(prefix_ttft(server, llm.name, prompt_words=560, pairs=asked.pairs))
    print("\n".join(table(levels)))
    print(
        f"TTFT of a prompt of about 600 tokens: cold {1000 * cold_s:.0f} ms, "
        f"prefix seen {1000 * warm_s:.0f} ms, ratio {warm_s / cold_s:.3f} (medians of {asked.pairs})"
    )
    if asked.json:
        figures = {
            "levels": [asdict(level) for level in levels],
            "ttft_cold_s": cold_s,
            "ttft_warm_s": warm_s,
        }
        asked.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
