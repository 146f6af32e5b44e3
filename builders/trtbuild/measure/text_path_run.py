"""Runs ``text_path`` in a real server and prints its table: ``python -m trtbuild.measure.text_path_run``."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import urllib.request
from dataclasses import asdict
from pathlib import Path

from trtbuild.doctor.prometheus import parse_metrics
from trtbuild.errors import MeasureError
from trtbuild.measure.bench_local import CpuClock
from trtbuild.measure.instant_repository import write_instant_repository
from trtbuild.measure.text_path import PROMPT, Arms, Summary, summarise
from trtbuild.serve.server import Server, start

# name of the case → time between tokens (ms), streams, whether the front coalesces
CASES: dict[str, tuple[float, int, bool]] = {
    "instant, 64 streams": (0.0, 64, True),
    "instant, 64 streams, without coalescing": (0.0, 64, False),
    "5 ms a token, 64 streams": (5.0, 64, True),
    "5 ms a token, 8 streams": (5.0, 8, True),
}


async def _measure(server: Server, tokenizer: Path, streams: int, tokens: int, pairs: int) -> Summary:
    import grpc
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    prompts = [encoder.encode(PROMPT.format(index)).ids for index in range(streams)]
    async with grpc.aio.insecure_channel(server.grpc_address) as channel:
        arms = Arms(channel, CpuClock(server.pid), prompts)
        for _ in range(2):  # warm both
            await arms.direct(streams, tokens)
            await arms.front(streams, tokens)
        measured = []
        for number in range(pairs):  # who goes first alternates
            if number % 2:
                front = await arms.front(streams, tokens)
                measured.append((front, await arms.direct(streams, tokens)))
            else:
                direct = await arms.direct(streams, tokens)
                measured.append((await arms.front(streams, tokens), direct))
    return summarise(measured)


def _held_share(server: Server, limit: str) -> float:
    """Share of responses whose oldest token waited in the front no longer than ``limit`` seconds."""
    with urllib.request.urlopen(f"http://{server.metrics_address}/metrics", timeout=10) as answer:
        metrics = parse_metrics(answer.read().decode())
    within = metrics.value("trtbuild_held_seconds_bucket", le=limit)
    count = metrics.value("trtbuild_held_seconds_count")
    if within is None or not count:
        raise MeasureError("the front's metrics do not tell how long responses were held")
    return within / count


def _lines(name: str, summary: Summary, held: float) -> list[str]:
    def cpu(by_process: dict[str, float]) -> str:
        parts = [f"{role} {us:.0f}" for role, us in by_process.items() if us >= 1]
        return f"{sum(by_process.values()):.0f} = {' + '.join(parts)}"

    of = summary
    return [
        f"{name}: ratio {of.ratio:.2f} ({of.ratio_low:.2f} to {of.ratio_high:.2f}, {of.pairs} pairs); "
        f"{of.front_tokens_per_s:.0f} of {of.direct_tokens_per_s:.0f} tokens/s, "
        f"{of.tokens_per_response:.2f} tokens a response",
        f"  first response P99 {of.front_first_p99_ms:.0f} ms of {of.direct_first_p99_ms:.0f} ms, "
        f"ratio {of.first_p99_ratio:.1f}; {held:.1%} of responses held at most 1 ms",
        f"  CPU µs a token: front {cpu(of.front_cpu_us_per_token)}",
        f"                 direct {cpu(of.direct_cpu_us_per_token)}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path, help="folder with a tokenizer.json, or a GGUF file")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--case", action="append", choices=CASES, help="default: all")
    parser.add_argument("--json", type=Path, help="also write the results there")
    arguments = parser.parse_args()
    results: dict[str, Summary] = {}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = arguments.tokenizer
        if tokenizer.suffix == ".gguf":
            from trtbuild.build.text_assets import write_text_assets

            write_text_assets(tokenizer, Path(folder) / "tokenizer")
            tokenizer = Path(folder) / "tokenizer"
        for index, name in enumerate(arguments.case or CASES):
            step_ms, streams, coalesce = CASES[name]
            repository = Path(folder) / f"repository{index}"
            parameters = {"coalesce": str(coalesce).lower()}
            write_instant_repository(repository, tokenizer, step_ms=step_ms, parameters=parameters)
            with start(repository) as server:
                results[name] = asyncio.run(
                    _measure(server, tokenizer, streams, arguments.tokens, arguments.pairs)
                )
                print("\n".join(_lines(name, results[name], _held_share(server, "0.001"))), flush=True)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({name: asdict(value) for name, value in results.items()}, indent=2)
        )


if __name__ == "__main__":
    main()
