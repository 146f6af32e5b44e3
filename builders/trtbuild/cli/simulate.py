"""``trtbuild simulate``: what a load does to a deployment, before there is one."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from trtbuild.cli.console import note, print_json
from trtbuild.cli.measured import load_from_file, open_store, runs_option
from trtbuild.cli.options import ABOVE_ZERO, NOT_NEGATIVE, Number, PathType, read_spec, spec_options
from trtbuild.defaults import (
    LENGTH_VARIATION,
    MAX_INPUT_TOKENS,
    MAX_OUTPUT_TOKENS,
    USUAL_INPUT_TOKENS,
    USUAL_OUTPUT_TOKENS,
)
from trtbuild.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trtbuild.plan.latency.forecast import Forecast, System
    from trtbuild.plan.latency.mix import Level, Mix
    from trtbuild.simulate import Deployment
    from trtbuild.spec import DeploymentSpec

_COUNT = click.IntRange(min=1)
# A million requests take about a minute, and each some hundred bytes.
_MOST_REQUESTS = 20_000_000
_MANY_REQUESTS = 200_000  # above which a level takes half a minute and more
_MOST_REPLICAS = 10_000
_MOST_USERS = 100_000  # as many as a closed loop of `bench`
_ROUNDS = 5  # of each user at least: in the first all wait at once, as no server's users do


@spec_options
@click.command("simulate")
@click.option(
    "--isl",
    type=_COUNT,
    default=USUAL_INPUT_TOKENS,
    show_default=True,
    help="Tokens of a prompt, on average.",
)
@click.option(
    "--osl",
    type=_COUNT,
    default=USUAL_OUTPUT_TOKENS,
    show_default=True,
    help="Tokens of an answer, on average.",
)
@click.option(
    "--spread",
    type=NOT_NEGATIVE,
    default=LENGTH_VARIATION,
    show_default=True,
    help="Standard deviation of the lengths over their mean; 0: all alike.",
)
@click.option("--rate", "rates", type=ABOVE_ZERO, multiple=True, help="Requests a second; may be repeated.")
@click.option(
    "--users",
    type=click.IntRange(1, _MOST_USERS),
    multiple=True,
    help="Users who wait for their answers; may be repeated.",
)
@click.option(
    "--think", type=NOT_NEGATIVE, default=0.0, metavar="S", help="A user's pause before the next request."
)
@click.option("--ttft-ms", type=ABOVE_ZERO, help="Budget: the load and the limits that keep it.")
@click.option(
    "--percentile",
    type=click.Choice(["50", "95", "99"]),
    default="95",
    show_default=True,
    help="Of the budget.",
)
@click.option("--shared-prefix", type=_COUNT, metavar="TOKENS", help="Tokens with which every prompt begins.")
@click.option("--prefixes", type=_COUNT, default=1, show_default=True, help="Different ones of these.")
@click.option(
    "--policy",
    type=click.Choice(["GUARANTEED_NO_EVICT", "MAX_UTILIZATION"]),
    default="GUARANTEED_NO_EVICT",
    show_default=True,
    help="Scheduler policy of the engine.",
)
@click.option(
    "--pictures", type=ABOVE_ZERO, metavar="N", help="Pictures a second for a vision model on the same GPU."
)
@click.option("--picture-ms", type=ABOVE_ZERO, help="Time of the whole GPU that a picture takes.")
@click.option(
    "--replicas",
    type=click.IntRange(1, _MOST_REPLICAS),
    default=1,
    show_default=True,
    help="Engines behind least-connections.",
)
@click.option(
    "--fleet-rate", type=ABOVE_ZERO, help="Requests a second for which replicas are counted (with --ttft-ms)."
)
@click.option(
    "--price",
    type=Number(min=0, min_open=True, max=1e6),
    help="Of a GPU hour: adds the cost of a million tokens of answers.",
)
@click.option(
    "--requests",
    type=click.IntRange(50, _MOST_REQUESTS),
    default=2000,
    show_default=True,
    help="Simulated at each level; of users at least 5 each.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--from-run",
    "run_id",
    metavar="RUN",
    help="A step's cost from this recorded run instead of published figures.",
)
@click.option(
    "--load",
    "load_file",
    type=PathType(),
    metavar="FILE",
    help="Predict what `bench --load FILE` will measure, request by request.",
)
@click.option(
    "--calibration-load",
    type=PathType(),
    metavar="FILE",
    help="Write the load to calibrate with, for `bench --load`.",
)
@runs_option
@click.option("--explain", is_flag=True, help="What the figures rest on, in words.")
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON.")
def simulate_command(
    rates: tuple[float, ...],
    users: tuple[int, ...],
    ttft_ms: float | None,
    percentile: str,
    policy: str,
    replicas: int,
    fleet_rate: float | None,
    price: float | None,
    requests: int,
    seed: int,
    run_id: str | None,
    load_file: Path | None,
    calibration_load: Path | None,
    runs_file: Path | None,
    explain: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Predict TTFT, TPOT and throughput of a deployment under load. Needs no GPU."""
    if flags["think"] and not users:
        raise click.UsageError("--think is a pause of --users N; requests of a --rate wait for nobody.")
    if flags["prefixes"] > 1 and flags["shared_prefix"] is None:
        raise click.UsageError("--prefixes counts different ones of --shared-prefix TOKENS: give that too.")
    mix = _mix(flags)
    if fleet_rate is not None and ttft_ms is None:
        raise click.UsageError("--fleet-rate counts the replicas that keep a budget: give --ttft-ms too.")
    if calibration_load is not None:
        _write_load(calibration_load, read_spec(flags))
        return
    kv_dtype = flags["kv_dtype"]
    longest = flags["max_input"], flags["max_output"]
    try:
        found = _deployment(flags, policy, run_id, runs_file)
    except PlanError as error:
        raise _with_shorter_slots(error, mix, longest) from None
    from trtbuild.measure.predicted import offered_by
    from trtbuild.plan.latency.budget import Budget
    from trtbuild.plan.latency.forecast import forecast, predicted
    from trtbuild.plan.latency.mix import Level

    system = replace(found.system, replicas=found.system.replicas * replicas)
    budget = None if ttft_ms is None else Budget(ttft_ms / 1e3, int(percentile))
    answer: dict[str, Any] = {}
    if budget is not None:
        answer = found.within(budget, mix, system=system, fleet_rate=fleet_rate, requests=requests, seed=seed)
    levels = [Level(rate=rate) for rate in rates] + [Level(users=count) for count in users]
    counts = [max(requests, _ROUNDS * (level.users or 0)) for level in levels]
    if max(counts, default=0) >= _MANY_REQUESTS:
        note(f"· {max(counts):,} requests a level, as predicted and at both ends of the error bars")
    rows = [
        forecast(system, mix, level, requests=count, seed=seed)
        for level, count in zip(levels, counts, strict=True)
    ]
    if load_file is not None:
        rows.append(predicted(system, *offered_by(load_from_file(load_file))))
    rows = rows or [
        forecast(system, mix, level, requests=requests, seed=seed)
        for level in _usual_levels(system, mix, requests, seed)
    ]
    data = _data(rows, answer, found.notes, system, price)
    if as_json:
        print_json(data)
        return
    from trtbuild.cli.simulate_view import print_answer, print_forecasts, print_limits

    print_forecasts(rows, [row.get("cost_per_million_tokens") for row in data["levels"]])
    print_limits(rows if load_file is None else rows[:-1], system.limits, mix, kv_dtype)
    print_answer(answer)
    for text in found.notes:
        note(text)
    if explain:
        click.echo(found.explain(mix))


def _deployment(flags: dict[str, Any], policy: str, run_id: str | None, runs_file: Path | None) -> Deployment:
    from trtbuild.simulate import deployment, deployment_of_run

    if run_id is None:
        return deployment(read_spec(flags), policy=policy)
    record = open_store(runs_file).read(run_id)
    if flags["models"] or flags["spec"]:
        return deployment(read_spec(flags), policy=policy, record=record)
    return deployment_of_run(record, policy=policy)


def _with_shorter_slots(error: PlanError, mix: Mix, longest: tuple[int | None, int | None]) -> PlanError:
    """The error of a plan; where its slots are longer than the load's requests, with that way out."""
    slots = (
        ("--max-input", longest[0], mix.isl, MAX_INPUT_TOKENS),
        ("--max-output", longest[1], mix.osl, MAX_OUTPUT_TOKENS),
    )
    options = {
        name: lengths.nearly_longest
        for name, given, lengths, usual in slots
        if given is None and lengths.nearly_longest < usual
    }
    if not options:
        return error
    shorter = " ".join(f"{name} {tokens}" for name, tokens in options.items())
    planned = " + ".join(str(given or usual) for _, given, _, usual in slots)
    way = f"{shorter}: as long as requests of this load get; planned are {planned} tokens"
    return PlanError(error.message, *error.remedies, way)


def _write_load(path: Path, spec: DeploymentSpec) -> None:
    from trtbuild.measure.calibration import as_file, calibration_load
    from trtbuild.plan.sources import name_of

    if len(spec.models) != 1:
        raise click.UsageError("--calibration-load is for one model: --model NAME.")
    llm = spec.models[0]
    load = calibration_load(name_of(llm), longest_prompt=llm.max_input_tokens)
    path.write_text(as_file(load), encoding="utf-8")
    note(f"{path}: at most {load.duration_s:g} s; trtbuild bench --load {path}, then simulate --from-run RUN")


def _mix(flags: dict[str, Any]) -> Mix:
    isl, osl, spread = (flags.pop(name) for name in ("isl", "osl", "spread"))
    shared, prefixes, think = flags.pop("shared_prefix"), flags.pop("prefixes"), flags.pop("think")
    pictures, picture_ms = flags.pop("pictures"), flags.pop("picture_ms")
    if (pictures is None) != (picture_ms is None):
        raise click.UsageError(
            "--pictures and --picture-ms belong together: how many, and how long each takes."
        )
    if shared is not None and shared >= isl:
        raise click.UsageError(f"--shared-prefix {shared} leaves nothing of a prompt of {isl} tokens.")
    from trtbuild.plan.latency.load import Lengths
    from trtbuild.plan.latency.mix import Mix

    longest_in, longest_out = (
        flags["max_input"] or MAX_INPUT_TOKENS,
        flags["max_output"] or MAX_OUTPUT_TOKENS,
    )
    return Mix(
        isl=Lengths(isl, spread, max(isl, longest_in)),
        osl=Lengths(osl, spread, max(osl, longest_out)),
        limit=max(osl, longest_out),
        prefixes=prefixes if shared else 0,
        prefix_tokens=shared or 0,
        think_s=think,
        pictures_per_s=pictures or 0.0,
        picture_s=(picture_ms or 0.0) / 1e3,
    )


def _usual_levels(system: System, mix: Mix, requests: int, seed: int) -> list[Level]:
    from trtbuild.plan.latency.budget import capacity_per_s
    from trtbuild.plan.latency.mix import Level

    capacity = capacity_per_s(system, mix, requests=requests, seed=seed)
    return [Level(rate=float(f"{capacity * share:.2g}")) for share in (0.1, 0.25, 0.5, 0.7, 0.85, 0.95)]


def _data(
    rows: Sequence[Forecast],
    answer: dict[str, Any],
    notes: Sequence[str],
    system: System,
    price: float | None,
) -> dict[str, Any]:
    from trtbuild.plan.latency.budget import cost_per_million

    levels = []
    for row in rows:
        level = asdict(row)
        if price is not None:
            level["cost_per_million_tokens"] = cost_per_million(
                price_per_gpu_hour=price,
                gpus=system.gpus_per_replica * system.replicas,
                tokens_per_s=row.tokens_out_per_s.value,
            )
        levels.append(level)
    return {"levels": levels, "budget": answer, "notes": list(notes)}
