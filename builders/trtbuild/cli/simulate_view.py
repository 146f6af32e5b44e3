"""Forecasts as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trtbuild.cli.console import note, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtbuild.plan.latency.forecast import Figure, Forecast
    from trtbuild.plan.latency.mix import Level, Mix
    from trtbuild.plan.latency.replica import Limits

_FULL = 0.9  # share of what the plan carries at once
_WAITS = 0.5  # of the time to the first token


def print_forecasts(rows: Sequence[Forecast], costs: Sequence[float | None]) -> None:
    """One line a level: first tokens and gaps with their error bars, what is made, how full it is."""
    columns = [">load", ">TTFT P50 ms", ">TTFT P95 ms", ">TPOT P50 ms", ">tokens/s", ">batch", ">busy"]
    priced = any(cost is not None for cost in costs)
    lines = []
    for row, cost in zip(rows, costs, strict=True):
        line = [
            _level(row.level),
            _ms(row.ttft_s[50]),
            _ms(row.ttft_s[95]),
            _ms(row.tpot_s[50]),
            _rate(row.tokens_out_per_s.value),
            f"{row.mean_batch:.1f}",
            f"{row.busy_share:.0%}",
        ]
        lines.append([*line, f"{cost:.2f}"] if priced else line)
    print_table([*columns, ">cost of 1M tokens out"] if priced else columns, lines)
    if any(row.level.rate and row.requests_per_s < 0.95 * row.level.rate for row in rows):
        note("where fewer requests a second end than come, the queue grows as long as the load lasts")
    for row in rows:
        if row.picture_latency_s:
            latency = row.picture_latency_s
            note(
                f"{_level(row.level)}: a picture takes {latency[50] * 1e3:.0f} ms, "
                f"P95 {latency[95] * 1e3:.0f} ms"
            )


def _rate(per_s: float) -> str:
    """Whole tokens a second, and two digits of few."""
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"


def print_limits(rows: Sequence[Forecast], limits: Limits, mix: Mix, kv_dtype: str | None) -> None:
    """Where the plan and not the GPU limits: every place of the batch taken, or no room in the pool."""
    reserved = mix.limit or mix.osl.mean if limits.policy == "GUARANTEED_NO_EVICT" else mix.osl.mean
    carried = limits.kv_tokens / (mix.isl.mean + reserved)
    places = min(float(limits.max_batch_size), carried)
    full = [
        _level(row.level)
        for row in rows
        if row.mean_batch >= _FULL * places
        or (carried < limits.max_batch_size and row.queue_s[50] > _WAITS * row.ttft_s[50].value)
    ]
    if not full:
        return
    if carried < limits.max_batch_size:
        narrower = "an 8-bit KV cache where the model takes one (--kv-dtype), "
        narrower = "" if kv_dtype in ("fp8", "int8") else narrower
        note(
            f"at {', '.join(full)} the KV pool limits: its {limits.kv_tokens:,} tokens carry {carried:.0f} "
            f"such requests, and the batch has {limits.max_batch_size} places; {narrower}narrower "
            "weights or a larger GPU make room"
        )
    else:
        note(
            f"at {', '.join(full)} the plan limits: nearly all {limits.max_batch_size} places of the batch "
            "are taken, and more requests wait; a larger --concurrency (or --max-batch-size) carries more, "
            "at a higher TPOT"
        )


def print_answer(answer: dict[str, Any]) -> None:
    """What keeps the budget."""
    if not answer:
        return
    budget = f"TTFT P{answer['percentile']} ≤ {answer['ttft_ms']:g} ms"
    if not answer["rate"]:
        click.echo(
            f"{budget}: not even one request alone keeps it; the nearest is {answer['alone_ms']:.0f} ms"
        )
        return
    click.echo(f"{budget}: up to {answer['users']} users, or {answer['rate']:.3g} requests a second")
    limits = answer["limits"]
    if limits:
        click.echo(
            f"with max_batch_size {limits['max_batch_size']} and max_num_tokens {limits['max_num_tokens']}: "
            f"{limits['rate']:.3g} requests a second"
        )
    if "replicas" in answer:
        click.echo(f"{answer['fleet_rate']:g} requests a second: {answer['replicas']} replicas")


def _level(level: Level) -> str:
    return f"{level.rate:g}/s" if level.rate is not None else f"{level.users} users"


def _ms(figure: Figure) -> str:
    low, value, high = (f"{seconds * 1e3:,.{0 if seconds >= 0.1 else 1}f}" for seconds in _ordered(figure))
    return f"{value} ({low}–{high})"


def _ordered(figure: Figure) -> tuple[float, float, float]:
    return figure.low, figure.value, figure.high
