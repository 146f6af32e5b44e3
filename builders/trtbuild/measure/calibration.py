"""A run that the latency model is calibrated on: its load, and what of its record the model reads."""

from __future__ import annotations

import yaml

from trtbuild.errors import MeasureError
from trtbuild.measure.load.spec import Closed, Flow, LoadSpec, TextTraffic
from trtbuild.measure.records.record import Record
from trtbuild.plan.latency.calibrate import MeasuredRequest

# Prompt and answer tokens. Prompts of a few tokens tell what a step costs apart from what a request costs,
# long ones what a token costs; answers are short enough that there are some hundred of them.
_CLASSES = (
    (1, 24), (2, 24), (4, 24), (8, 24), (16, 24), (48, 16), (160, 12), (450, 8), (900, 6), (40, 100),
)  # fmt: skip
_USERS, _DURATION_S, _RAMP_S, _WARM_UP_S = 4, 150.0, 120.0, 2.0


def calibration_load(model: str, *, longest_prompt: int = 2048) -> LoadSpec:
    """One to four users in turn, for 150 seconds, with prompts of many lengths up to ``longest_prompt``."""
    traffic = tuple(
        TextTraffic(name=f"{isl}-{osl}", input_tokens=isl, output_tokens=osl)
        for isl, osl in _CLASSES
        if isl <= longest_prompt
    )
    flow = Flow(model=model, shape=Closed(users=_USERS, ramp_s=_RAMP_S), traffic=traffic)
    return LoadSpec(flows=(flow,), duration_s=_DURATION_S, warmup_s=_WARM_UP_S)


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
            osl=one.output_tokens,
            ttft_s=one.first_s - one.sent_s,
            tpot_s=one.tpot_s,
        )
        for one in answers
        if one.sent_s is not None
        and one.first_s is not None
        and one.first_s > one.sent_s
        and one.prompt_tokens
        and one.output_tokens
    ]
