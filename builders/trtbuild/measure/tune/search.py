"""The search: from the beginning's settings, one knob at a time, up or down as long as it helps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trtbuild.measure.tune.knobs import Knob, Settings

LEAST_GAIN = 0.03  # below it a difference is noise, whatever the repeats say


@dataclass(frozen=True)
class Trial:
    """One configuration, measured.

    Attributes:
        score: goodput, requests a second within the budget; None: it could not be made or served.
        figure_s: the budget's percentile; breaks ties where nothing meets the budget.
        error: why there is no score.
        at_least: ``figure_s`` falls among requests that failed: the true one is larger.
    """

    settings: Settings
    score: float | None
    figure_s: float | None = None
    run_id: str = ""
    error: str = ""
    at_least: bool = False

    def better_than(self, other: Trial, noise: float) -> bool:
        """Whether it helps, by more than noise."""
        if self.score is None:
            return False
        if not other.score:
            if self.score:
                return True
            faster = self.figure_s is not None and other.figure_s is not None
            return faster and self.figure_s < other.figure_s * (1 - noise)  # type: ignore[operator]
        return self.score > other.score * (1 + noise)


@dataclass
class Tuning:
    """What was tried and what was found."""

    best: Trial
    noise: float
    trials: list[Trial] = field(default_factory=list)

    @property
    def begin(self) -> Trial:
        return self.trials[0]

    def as_json(self) -> dict[str, Any]:
        rows = [vars(trial) for trial in self.trials]
        return {"best": vars(self.best), "begin": vars(self.begin), "noise": self.noise, "trials": rows}


def search(
    measure: Callable[[Settings], Trial],
    knobs: Sequence[Knob],
    *,
    most_trials: int = 12,
    repeats: int = 2,
) -> Tuning:
    """Coordinate search.

    The beginning is measured ``repeats`` times: their spread is what counts as noise. Then each knob is moved
    up as long as that helps, else down as long as that helps; knobs are gone round until nothing helps any
    more or ``most_trials`` are used up. No configuration is measured twice after the beginning.
    """
    trials = [measure({}) for _ in range(max(1, repeats))]
    scores = [trial.score for trial in trials if trial.score]
    spread = (max(scores) - min(scores)) / max(scores) if len(scores) > 1 else 0.0
    tuning = Tuning(trials[0], max(LEAST_GAIN, spread), trials)
    tuning.best = max(trials, key=lambda trial: trial.score or 0.0)
    known = {_key({}): tuning.best}

    def tried(settings: Settings) -> Trial | None:
        key = _key(settings)
        if key not in known:
            if len(trials) >= most_trials:
                return None
            known[key] = measure(settings)
            trials.append(known[key])
        return known[key]

    helped = True
    while helped:
        helped = False
        for knob in knobs:
            helped = _turned(knob, tuning, tried) or helped
    return tuning


def _turned(knob: Knob, tuning: Tuning, tried: Callable[[Settings], Trial | None]) -> bool:
    """Moves one knob as far as it helps; says whether it did."""
    for direction in (0, 1):
        moved = False
        while True:
            value = tuning.best.settings.get(knob.name, knob.begin)
            following = knob.neighbours(value)[direction]
            trial = None if following is None else tried(_changed(tuning.best.settings, knob, following))
            if trial is None or not trial.better_than(tuning.best, tuning.noise):
                break
            tuning.best, moved = trial, True
        if moved:
            return True
    return False


def _changed(settings: Settings, knob: Knob, value: Any) -> Settings:
    rest = {name: old for name, old in settings.items() if name != knob.name}
    return rest if value == knob.begin else {**rest, knob.name: value}


def _key(settings: Settings) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(settings.items()))
