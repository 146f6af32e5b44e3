"""What load is put on a server: frozen, validated, and kept with every record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

RateValue = Annotated[float, Field(gt=0, le=1e6)]
MOST_TOKENS = 10_000_000  # of a prompt or an answer: more than any model takes, and little enough to make
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Closed(_Frozen):
    """N users, each of whom sends again when the answer is there: a closed loop."""

    kind: Literal["closed"] = "closed"
    users: int = Field(ge=1, le=100_000)
    think_s: float = Field(default=0.0, ge=0, description="pause between answer and next request")
    ramp_s: float = Field(default=0.0, ge=0, description="users come evenly over so many seconds")


class Poisson(_Frozen):
    """Independent arrivals at a mean rate: an open loop."""

    kind: Literal["poisson"] = "poisson"
    rate_per_s: RateValue


class Constant(_Frozen):
    """Evenly spaced arrivals."""

    kind: Literal["constant"] = "constant"
    rate_per_s: RateValue


class Bursts(_Frozen):
    """``requests`` at the same moment, every ``every_s`` seconds."""

    kind: Literal["bursts"] = "bursts"
    requests: int = Field(ge=1, le=100_000)
    every_s: float = Field(gt=0)


class Ramp(_Frozen):
    """Poisson arrivals whose rate goes linearly from one value to another over the run."""

    kind: Literal["ramp"] = "ramp"
    from_per_s: float = Field(ge=0)
    to_per_s: RateValue


class Replay(_Frozen):
    """A recorded trace: its times, and its lengths or prompts where it has them; see ``load.trace``."""

    kind: Literal["trace"] = "trace"
    path: Path
    speed: float = Field(default=1.0, gt=0, description="2: twice as fast as it was recorded")


Shape = Annotated[Closed | Poisson | Constant | Bursts | Ramp | Replay, Field(discriminator="kind")]


class TextTraffic(_Frozen):
    """Generated prompts of a length, answered with just ``output_tokens`` where the model can be told so."""

    kind: Literal["text"] = "text"
    name: str
    weight: float = Field(default=1.0, gt=0)
    input_tokens: Tokens
    output_tokens: Tokens
    prefix_share: float = Field(default=0.0, ge=0, le=1, description="of a prompt, shared with its class")
    prefix_groups: int = Field(default=1, ge=1, description="how many different shared beginnings there are")
    interactive: bool = True


class FileTraffic(_Frozen):
    """Prompts of a JSONL file, in its order and around again; the answer ends where the model ends it."""

    kind: Literal["file"] = "file"
    name: str
    weight: float = Field(default=1.0, gt=0)
    path: Path
    output_tokens: Tokens | None = Field(default=None, description="at most; default: the server's")
    interactive: bool = True


class VisionTraffic(_Frozen):
    """Pictures for a model that takes encoded images."""

    kind: Literal["vision"] = "vision"
    name: str
    weight: float = Field(default=1.0, gt=0)
    picture: Path | None = Field(default=None, description="default: a page that is drawn for it")
    interactive: bool = True


Traffic = Annotated[TextTraffic | FileTraffic | VisionTraffic, Field(discriminator="kind")]


class Flow(_Frozen):
    """One stream of arrivals to one model; each arrival is of one of the traffic classes, by weight."""

    model: str
    shape: Shape
    traffic: tuple[Traffic, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_kind(self) -> Flow:
        names = [item.name for item in self.traffic]
        if len(set(names)) < len(names):
            raise ValueError(f"two traffic classes have the same name: {', '.join(names)}")
        if len({item.kind == "vision" for item in self.traffic}) > 1:
            raise ValueError("a flow goes to one model: text or pictures, not both")
        return self


class Slo(_Frozen):
    """What a request must meet to count as good; None does not matter. Vision has ``latency_s`` alone."""

    ttft_s: float | None = Field(default=None, gt=0)
    tpot_s: float | None = Field(default=None, gt=0)
    latency_s: float | None = Field(default=None, gt=0)


class DegradeStep(_Frozen):
    """See ``tritonstream.Degrade``."""

    model: str | None = None
    max_tokens: Tokens | None = None
    refuse: bool = False


class LoadSpec(_Frozen):
    """A whole load: flows that run together, for how long, and what counts as good."""

    flows: tuple[Flow, ...] = Field(min_length=1)
    duration_s: float = Field(default=60.0, gt=0, le=86_400)
    warmup_s: float = Field(default=5.0, ge=0, description="at the beginning, part of duration_s")
    requests: int | None = Field(default=None, ge=1, description="stop after so many, warm-up included")
    timeout_s: float = Field(default=120.0, gt=0, description="a request that takes longer counts as timeout")
    seed: int = 1
    slo: Slo = Slo()
    degrade: tuple[DegradeStep, ...] = ()

    @model_validator(mode="after")
    def _window(self) -> LoadSpec:
        if self.warmup_s >= self.duration_s:
            raise ValueError(
                f"the warm-up of {self.warmup_s:g} s leaves nothing of {self.duration_s:g} s to measure"
            )
        names = [traffic.name for flow in self.flows for traffic in flow.traffic]
        if len(set(names)) < len(names):
            raise ValueError(f"two traffic classes have the same name: {', '.join(names)}")
        return self
