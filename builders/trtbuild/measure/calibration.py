"""A run that the latency model is calibrated on: its load, and what of its record the model reads."""

from __future__ import annotations

import yaml

from trtbuild.defaults import MAX_INPUT_TOKENS
from trtbuild.errors import MeasureError
from trtbuild.measure.load.spec import Closed, Flow, LoadSpec, TextTraffic
from trtbuild.measure.records.record import Record
from trtbuild.plan.latency.steps import MeasuredRequest

# Prompt and answer tokens. Prompts of a few tokens tell what a step costs apart from what a request costs,
# long ones what a token costs; answers are short enough that there are some hundred of them.
_CLASSES = (
    (1, 24), (2, 24), (4, 24), (8, 24), (16, 24), (48, 16), (160, 12), (450, 8), (900, 6), (40, 48),
)  # fmt: skip
DISTURBING_CORES = 0.3
_USERS, _RAMP_S, _DURATION_S, _WARM_UP_S = 4, 80.0, 100.0, 2.0


def calibration_load(model: str, *, longest_prompt: int = MAX_INPUT_TOKENS) -> LoadSpec:
    """One to four users in turn, for 100 seconds, with prompts of many lengths up to ``longest_prompt``.

    Nobody pauses: after an idle moment a CPU's first step is slower, which no busy server sees.
    """
    traffic = tuple(
        TextTraffic(name=f"{isl}-{osl}", input_tokens=isl, output_tokens=osl)
        for isl, osl in _CLASSES
        if isl <= longest_prompt
    )
    flow = Flow(model=model, shape=Closed(users=_USERS, ramp_s=_RAMP_S), traffic=traffic)
    return LoadSpec(flows=(flow,), duration_s=_DURATION_S, warmup_s=_WARM_UP_S)


def others_cores(record: Record) -> list[tuple[float, float]]:
    """(seconds, cores) that neither the server nor the generator used: what else ran on the machine.

    Empty where the server is not on this machine. The generator's share is that of the whole run.
    """
    rest: dict[float, float] = {}
    for t_s, _, series, value in record.timeline:
        if series in ("machine_cpu_cores", "cpu_cores"):
            rest[t_s] = rest.get(t_s, 0.0) + (value if series == "machine_cpu_cores" else -value)
    own = record.generator.get("cpu_share", 0.0)
    return [(t_s, cores - own) for t_s, cores in sorted(rest.items())]


def disturbed(record: Record) -> list[tuple[float, float]]:
    """Intervals in which the machine did something else beside the run. Each sample is of the time before."""
    found = []
    begin_s = 0.0
    for t_s, cores in others_cores(record):
        if cores > DISTURBING_CORES:
            found.append((begin_s, t_s))
        begin_s = t_s
    return found


def as_file(load: LoadSpec) -> str:
    """The load as `trtbuild bench --load FILE` reads it."""
    return yaml.safe_dump(load.model_dump(mode="json"), sort_keys=False)


def measured_requests(record: Record) -> list[MeasuredRequest]:
    """The answers of a record of which the tokens are known. Times count from when a request was sent.

    Raises:
        MeasureError: a run that was not finished, or in which several models were asked.
    """
    if not record.complete:
        raise MeasureError(
            f"run {record.run_id} is {record.state}: nothing is calibrated on a part of a run",
            "measure it again: trtbuild bench --load FILE",
        )
    answers = [one for one in record.measured() if one.outcome == "ok" and one.kind == "text"]
    models = {one.model for one in answers}
    if len(models) > 1:
        raise MeasureError(
            f"run {record.run_id} asked {', '.join(sorted(models))}: a step's cost is that of one model",
            "a run with one model",
        )
    return [
        MeasuredRequest(
            sent_s=one.sent_s,
            isl=one.prompt_tokens,
            arrivals=tuple(zip(one.arrival_s, one.arrival_tokens, strict=True)),
        )
        for one in answers
        if one.sent_s is not None and one.prompt_tokens and any(one.arrival_tokens)
    ]
